"""What Prometheus and its adapter need to serve the signals: the same for all resources. Pure."""

from __future__ import annotations

from typing import Final

from triptych_contract.names import Tier

from triptych_operator.api.autoscaling import MEASURED
from triptych_operator.desired import naming
from triptych_operator.desired.promql import query
from triptych_operator.json_values import Json, JsonObject

_SECONDS: Final = "15s"  # as often as an autoscaler looks


def pod_monitor_spec() -> JsonObject:
    """Has Prometheus scrape all pods of tiers, and know them by resource and tier."""
    labels = {
        naming.PROMETHEUS_SERVICE: naming.INSTANCE,
        naming.PROMETHEUS_TIER: naming.COMPONENT,
    }
    relabelings: list[Json] = [
        {"sourceLabels": [_discovered(label)], "targetLabel": target}
        for target, label in labels.items()
    ]
    endpoint: JsonObject = {"port": "metrics", "interval": _SECONDS, "relabelings": relabelings}
    return {
        "selector": {"matchLabels": {naming.MANAGED_BY: naming.MANAGER}},
        "podMetricsEndpoints": [endpoint],
    }


def rule_groups() -> list[Json]:
    """Records every signal of every tier by the name that autoscalers ask for."""
    rules: list[Json] = [
        {"record": naming.external_metric(tier, signal), "expr": query(tier, signal)}
        for tier in Tier
        for signal in MEASURED[tier]
    ]
    return [{"name": "triptych-signals", "interval": _SECONDS, "rules": rules}]


def adapter_values() -> JsonObject:
    """Values of prometheus-adapter's chart, by which it serves what is recorded."""
    names = "|".join(
        naming.external_metric(tier, signal) for tier in Tier for signal in MEASURED[tier]
    )
    rule: JsonObject = {
        "seriesQuery": f'{{__name__=~"{names}",{naming.PROMETHEUS_SERVICE}!=""}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
        "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    }
    return {"rules": {"default": False, "external": [rule]}}


def _discovered(label: str) -> str:
    """The name by which Prometheus finds a label of a pod."""
    characters = (char if char.isalnum() else "_" for char in label)
    return f"__meta_kubernetes_pod_label_{''.join(characters)}"
