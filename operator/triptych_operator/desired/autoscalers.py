"""One HorizontalPodAutoscaler per autoscaled tier."""

from __future__ import annotations

from typing import Final

from triptych_contract.names import Tier

from triptych_operator.api.autoscaling import Autoscaling, ScalingBehavior, ScalingMetric, Signal
from triptych_operator.api.quantities import parse_quantity
from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.desired.canonical import canonical
from triptych_operator.json_values import JsonObject

# Averages over the tier already; dividing them by its pods would say nothing.
_OVER_THE_TIER: Final = frozenset(
    {Signal.QUEUE_WAIT, Signal.KV_UTILIZATION, Signal.TIME_PER_OUTPUT_TOKEN}
)
_LARGEST_PERCENTAGE: Final = 2**31 - 1  # of the field's type; in effect, never to scale


def autoscaler(service: MultimodalService, tier: Tier, autoscaling: Autoscaling) -> JsonObject:
    """The autoscaler of ``tier``."""
    spec: JsonObject = {
        "scaleTargetRef": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": naming.child(service, tier),
        },
        "minReplicas": autoscaling.min,
        "maxReplicas": autoscaling.max,
        "metrics": [_metric(service, tier, metric) for metric in autoscaling.metrics],
    }
    if autoscaling.behavior is not None:
        spec["behavior"] = _behavior(autoscaling.behavior)
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": naming.metadata(service, naming.child(service, tier), tier),
        "spec": spec,
    }


def _behavior(given: ScalingBehavior) -> JsonObject:
    """The pace as given. No policies mean those of Kubernetes, which refuses an empty list."""
    directions = {"scaleUp": given.scale_up, "scaleDown": given.scale_down}
    return {
        name: rules.model_dump(
            mode="json",
            by_alias=True,
            exclude_none=True,
            exclude=None if rules.policies else {"policies"},
        )
        for name, rules in directions.items()
        if rules is not None
    }


def _metric(service: MultimodalService, tier: Tier, metric: ScalingMetric) -> JsonObject:
    if metric.signal is Signal.CPU_UTILIZATION:
        target: JsonObject = {
            "type": "Utilization",
            "averageUtilization": min(int(parse_quantity(metric.target)), _LARGEST_PERCENTAGE),
        }
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    if metric.signal in _OVER_THE_TIER:
        target = {"type": "Value", "value": canonical(metric.target)}
    else:
        target = {"type": "AverageValue", "averageValue": canonical(metric.target)}
    found: JsonObject = {
        "name": naming.external_metric(tier, metric.signal),
        "selector": {"matchLabels": {naming.INSTANCE: service.metadata.name}},
    }
    return {"type": "External", "external": {"metric": found, "target": target}}
