"""One HorizontalPodAutoscaler per autoscaled tier."""

from __future__ import annotations

from typing import Final

from triptych_contract.names import Tier

from triptych_operator.api.autoscaling import (
    OF_THE_CLUSTER,
    Autoscaling,
    ExternalMetric,
    ScalingBehavior,
    ScalingMetric,
    Signal,
)
from triptych_operator.api.quantities import parse_quantity
from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.desired.canonical import canonical
from triptych_operator.desired.platform import Metrics, Platform
from triptych_operator.desired.targets import is_shared, metrics_of
from triptych_operator.json_values import JsonObject

LARGEST_PERCENTAGE: Final = 2**31 - 1  # of the field's type; in effect, never to scale
_RESOURCES: Final = {Signal.CPU_UTILIZATION: "cpu", Signal.MEMORY_UTILIZATION: "memory"}


def autoscaler(
    service: MultimodalService, tier: Tier, autoscaling: Autoscaling, platform: Platform
) -> JsonObject:
    """The autoscaler of ``tier``."""
    metrics = metrics_of(service.spec, tier, measured=platform.metrics is not Metrics.NONE)
    spec: JsonObject = {
        "scaleTargetRef": target_of(service, tier),
        "minReplicas": autoscaling.min,
        "maxReplicas": autoscaling.max,
        "metrics": [_metric(service, tier, metric, platform) for metric in metrics],
    }
    if autoscaling.behavior is not None:
        spec["behavior"] = behavior(autoscaling.behavior)
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": naming.metadata(service, naming.child(service, tier), tier),
        "spec": spec,
    }


def target_of(service: MultimodalService, tier: Tier) -> JsonObject:
    """What an autoscaler scales."""
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": naming.child(service, tier)}


def behavior(given: ScalingBehavior) -> JsonObject:
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


def percentage(metric: ScalingMetric) -> int:
    """The target of a metric of ``OF_THE_CLUSTER``, in percent of what is requested."""
    return min(int(parse_quantity(metric.target)), LARGEST_PERCENTAGE)


def resource_name(signal: Signal) -> str:
    """The resource that a signal of ``OF_THE_CLUSTER`` is about."""
    return _RESOURCES[signal]


def _metric(
    service: MultimodalService, tier: Tier, metric: ScalingMetric, platform: Platform
) -> JsonObject:
    if metric.signal in OF_THE_CLUSTER:
        used: JsonObject = {"type": "Utilization", "averageUtilization": percentage(metric)}
        resource: JsonObject = {"name": resource_name(metric.signal), "target": used}
        return {"type": "Resource", "resource": resource}
    if is_shared(metric):
        target: JsonObject = {"type": "AverageValue", "averageValue": canonical(metric.target)}
    else:
        target = {"type": "Value", "value": canonical(metric.target)}
    if metric.external is not None:
        found = _of_others(metric.external)
    else:
        found = _of_ours(service, tier, metric.signal, platform)
    return {"type": "External", "external": {"metric": found, "target": target}}


def _of_others(external: ExternalMetric) -> JsonObject:
    if not external.selector:
        return {"name": external.name}
    return {"name": external.name, "selector": {"matchLabels": {**external.selector}}}


def _of_ours(
    service: MultimodalService, tier: Tier, signal: Signal, platform: Platform
) -> JsonObject:
    # Prometheus' adapter passes a selector on as it is, and labels of Prometheus hold no dots.
    by_prometheus = platform.metrics is Metrics.PROMETHEUS
    label = naming.PROMETHEUS_SERVICE if by_prometheus else naming.INSTANCE
    return {
        "name": naming.external_metric(tier, signal),
        "selector": {"matchLabels": {label: service.metadata.name}},
    }
