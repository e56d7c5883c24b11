"""What the metrics API says is what Kubernetes' types are."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import MEASURED, Signal
from triptych_operator.api.quantities import parse_quantity
from triptych_operator.metrics_api.answers import METRICS, Measured, quantity, value_list
from triptych_operator.observed.store import ServiceKey


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (1000.0, "1000"),
        (0.25, "250m"),
        (12.3456, "12346m"),
        (0.0001, "0"),
        (123456789.0, "123456789"),
        (1e18, "9223372036854775807m"),
    ],
)
def test_a_value_is_a_quantity_of_thousandths(value: float, text: str) -> None:
    assert quantity(value) == text
    if value < 1e15:
        assert abs(parse_quantity(text) - Decimal(value)) <= Decimal("0.0005")


def test_every_signal_of_every_tier_has_a_name_of_its_own() -> None:
    assert METRICS["triptych_encoder_backlog_tokens"] == (Tier.ENCODER, Signal.BACKLOG_TOKENS)
    assert len(METRICS) == sum(len(signals) for signals in MEASURED.values())


def test_a_list_of_values_is_as_autoscalers_read_it() -> None:
    at = datetime(2026, 11, 30, 2, 45, 22, 999_999, tzinfo=UTC)
    measured = Measured(ServiceKey("models", "shapes"), Tier.ENCODER, 0.5, at)
    assert value_list("triptych_encoder_queue_wait_seconds", [measured]) == {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "metricName": "triptych_encoder_queue_wait_seconds",
                "metricLabels": {
                    "app.kubernetes.io/name": "triptych",
                    "app.kubernetes.io/instance": "shapes",
                    "app.kubernetes.io/component": "encoder",
                },
                "timestamp": "2026-11-30T02:45:22Z",
                "value": "500m",
            }
        ],
    }
    assert value_list("any", [])["items"] == []
