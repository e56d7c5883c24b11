"""What the metrics API says, as JSON of Kubernetes' own types. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from triptych_contract.names import Tier

from triptych_operator.api.autoscaling import MEASURED, Signal
from triptych_operator.desired import naming
from triptych_operator.json_values import Json, JsonObject
from triptych_operator.observed.store import ServiceKey

GROUP: Final = "external.metrics.k8s.io"
VERSION: Final = "v1beta1"
GROUP_VERSION: Final = f"{GROUP}/{VERSION}"
_PER_MILLE: Final = 1000
_MOST_THOUSANDTHS: Final = 2**63 - 1

# Every metric by its name.
METRICS: Final[Mapping[str, tuple[Tier, Signal]]] = {
    naming.external_metric(tier, signal): (tier, signal)
    for tier, signals in MEASURED.items()
    for signal in signals
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One signal of one tier of one resource."""

    service: ServiceKey
    tier: Tier
    value: float
    at: datetime

    @property
    def labels(self) -> dict[str, str]:
        """By which selectors choose it: those of the tier's pods."""
        return {
            naming.NAME: naming.MANAGER,
            naming.INSTANCE: self.service.name,
            naming.COMPONENT: self.tier.value,
        }


def value_list(metric: str, measured: Iterable[Measured]) -> JsonObject:
    """Values of one metric. None at all is how an autoscaler is told that nothing is known."""
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": GROUP_VERSION,
        "metadata": {},
        "items": [
            {
                "metricName": metric,
                "metricLabels": {**one.labels},
                "timestamp": one.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "value": quantity(one.value),
            }
            for one in measured
        ],
    }


def quantity(value: float) -> str:
    """``value`` as a Kubernetes quantity. Autoscalers reckon in thousandths of 64 bits, so neither
    finer nor more."""
    thousandths = min(round(value * _PER_MILLE), _MOST_THOUSANDTHS)
    whole, rest = divmod(thousandths, _PER_MILLE)
    return f"{thousandths}m" if rest else str(whole)


def group_list() -> JsonObject:
    """The groups that are served: this one."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]}


def group() -> JsonObject:
    """The group and its version."""
    version: Json = {"groupVersion": GROUP_VERSION, "version": VERSION}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    }


def resource_list() -> JsonObject:
    """The metrics, which the group has as its resources."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": GROUP_VERSION,
        "resources": [
            {
                "name": metric,
                "singularName": "",
                "namespaced": True,
                "kind": "ExternalMetricValueList",
                "verbs": ["get"],
            }
            for metric in sorted(METRICS)
        ],
    }


def open_api_v2() -> JsonObject:
    """A description that describes nothing: the API server asks for one, and no client does."""
    return {"swagger": "2.0", "info": {"title": GROUP, "version": VERSION}, "paths": {}}


def open_api_v3() -> JsonObject:
    """The same, as the root of descriptions by group."""
    return {"paths": {}}


def failure(code: int, reason: str, message: str) -> JsonObject:
    """A refusal, as clients of Kubernetes read it."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
