from typing import Any

import promql_parser
import pytest
from mms_builders import service
from triptych_contract.names import Tier
from triptych_operator.desired.platform import Metrics, Platform
from triptych_operator.desired.scaledobjects import scaled_object
from triptych_operator.desired.state import desired_state

PLATFORM = Platform("worker:1", metrics=Metrics.KEDA, prometheus_url="http://prometheus:9090")


def made(tier: str = "prefill", **autoscaling: Any) -> Any:
    changes = {f"tiers__{tier}__autoscaling": {"max": 9, **autoscaling}}
    resource = service(**changes, degraded__onEncoderLoss="Queue")
    given = resource.spec.tier(Tier(tier)).autoscaling
    assert given is not None
    return scaled_object(resource, Tier(tier), given, PLATFORM)["spec"]


def test_bounds_and_pace_are_those_of_the_resource() -> None:
    behavior = {"scaleUp": {"selectPolicy": "Disabled"}}
    spec = made(min=3, behavior=behavior)
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (3, 9)
    assert spec["advanced"] == {"horizontalPodAutoscalerConfig": {"behavior": behavior}}
    assert not {"idleReplicaCount", "cooldownPeriod"} & set(spec)
    assert spec["scaleTargetRef"]["name"] == "shapes-prefill"


@pytest.mark.parametrize(
    ("signal", "target", "type_", "threshold"),
    [
        ("BacklogTokens", "20k", "AverageValue", "20000"),
        ("QueueWait", "500m", "Value", "0.5"),
        ("TimeToFirstToken", "1.250", "Value", "1.25"),
    ],
)
def test_signals_are_queries_that_are_shared_or_compared_whole(
    signal: str, target: str, type_: str, threshold: str
) -> None:
    [trigger] = made(metrics=[{"signal": signal, "target": target}])["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", type_)
    assert trigger["metadata"]["threshold"] == threshold
    assert trigger["metadata"]["serverAddress"] == "http://prometheus:9090"
    promql_parser.parse(trigger["metadata"]["query"])
    assert 'namespace="default", triptych_service="shapes"' in trigger["metadata"]["query"]


def test_what_the_cluster_measures_is_keda_s_own_trigger() -> None:
    metrics = [{"signal": "MemoryUtilization", "target": 70}]
    assert made(metrics=metrics)["triggers"] == [
        {"type": "memory", "metricType": "Utilization", "metadata": {"value": "70"}}
    ]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"queue": "a"}, 'sum({__name__="x:depth", namespace="default", queue="a"})'),
        ({"a.b/c": "d"}, 'sum({__name__="x:depth", namespace="default", "a.b/c"="d"})'),
    ],
)
def test_a_metric_of_others_is_asked_of_prometheus(selector: dict[str, str], expected: str) -> None:
    external = {"name": "x:depth", "selector": selector, "per": "Tier"}
    given = {"signal": "External", "target": 1, "external": external}
    [trigger] = made(metrics=[given])["triggers"]
    assert (trigger["metadata"]["query"], trigger["metricType"]) == (expected, "Value")


def test_encoders_rest_at_zero_and_wake_for_pictures() -> None:
    spec = made("encoder", min=2, scaleToZeroAfter="1m30s")
    assert (spec["idleReplicaCount"], spec["minReplicaCount"]) == (0, 2)
    assert spec["cooldownPeriod"] == 90
    trigger = spec["triggers"][-1]
    promql_parser.parse(trigger["metadata"]["query"])
    assert "triptych_requests_without_encoder" in trigger["metadata"]["query"]
    assert float(trigger["metadata"]["threshold"]) >= 1e9, "asks for one pod at most"


def test_keda_makes_the_autoscalers_so_that_we_make_none() -> None:
    resource = service(tiers__decode__autoscaling={"max": 2})
    kinds = [one["kind"] for one in desired_state(resource, PLATFORM)]
    assert "HorizontalPodAutoscaler" not in kinds
    assert kinds[-1] == "ScaledObject"
