"""One ScaledObject of KEDA per autoscaled tier, of which KEDA makes an autoscaler."""

from __future__ import annotations

import re
from typing import Final

from triptych_contract.names import Tier

from triptych_operator.api.autoscaling import (
    OF_THE_CLUSTER,
    Autoscaling,
    EncoderAutoscaling,
    ExternalMetric,
    ScalingMetric,
)
from triptych_operator.api.quantities import parse_quantity
from triptych_operator.api.scalars import parse_seconds
from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.desired.autoscalers import behavior, percentage, resource_name, target_of
from triptych_operator.desired.platform import Platform
from triptych_operator.desired.promql import demand, query
from triptych_operator.desired.targets import is_shared, metrics_of
from triptych_operator.json_values import Json, JsonObject

_POLL_SECONDS: Final = 10
# Of a trigger that tells apart none and some, and never asks for more than one pod.
_NEVER_REACHED: Final = "1000000000"
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def scaled_object(
    service: MultimodalService, tier: Tier, autoscaling: Autoscaling, platform: Platform
) -> JsonObject:
    """What KEDA is to make of ``tier``."""
    triggers: list[Json] = [
        _trigger(service, tier, metric, platform) for metric in metrics_of(service.spec, tier)
    ]
    spec: JsonObject = {
        "scaleTargetRef": target_of(service, tier),
        "pollingInterval": _POLL_SECONDS,
        "minReplicaCount": autoscaling.min,
        "maxReplicaCount": autoscaling.max,
    }
    after = autoscaling.scale_to_zero_after if isinstance(autoscaling, EncoderAutoscaling) else None
    if after is not None:
        spec["idleReplicaCount"] = 0
        spec["cooldownPeriod"] = max(1, round(parse_seconds(after)))
        wanted = _by_prometheus(demand(*_where(service)), _NEVER_REACHED, platform, shared=True)
        triggers.append(wanted)
    spec["triggers"] = triggers
    if autoscaling.behavior is not None:
        pace: JsonObject = {"behavior": behavior(autoscaling.behavior)}
        spec["advanced"] = {"horizontalPodAutoscalerConfig": pace}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": naming.metadata(service, naming.child(service, tier), tier),
        "spec": spec,
    }


def _trigger(
    service: MultimodalService, tier: Tier, metric: ScalingMetric, platform: Platform
) -> JsonObject:
    if metric.signal in OF_THE_CLUSTER:
        return {
            "type": resource_name(metric.signal),
            "metricType": "Utilization",
            "metadata": {"value": str(percentage(metric))},
        }
    if metric.external is not None:
        asked = _of_others(service, metric.external)
    else:
        asked = query(tier, metric.signal, *_where(service))
    threshold = f"{parse_quantity(metric.target).normalize():f}"
    return _by_prometheus(asked, threshold, platform, shared=is_shared(metric))


def _by_prometheus(asked: str, threshold: str, platform: Platform, *, shared: bool) -> JsonObject:
    return {
        "type": "prometheus",
        "metricType": "AverageValue" if shared else "Value",
        "metadata": {
            "serverAddress": platform.prometheus_url,
            "query": asked,
            "threshold": threshold,
        },
    }


def _where(service: MultimodalService) -> tuple[str, str]:
    metadata = service.metadata
    return (
        f'namespace="{metadata.namespace}"',
        f'{naming.PROMETHEUS_SERVICE}="{metadata.name}"',
    )


def _of_others(service: MultimodalService, external: ExternalMetric) -> str:
    """A metric of somebody else's in the namespace. Names that Prometheus takes in quotes alone,
    and since its version 3, are quoted."""
    labels = {"namespace": service.metadata.namespace, **external.selector}
    matchers = (
        f'{name if _PLAIN.fullmatch(name) else f"{chr(34)}{name}{chr(34)}"}="{value}"'
        for name, value in labels.items()
    )
    return f'sum({{__name__="{external.name}", {", ".join(matchers)}}})'
