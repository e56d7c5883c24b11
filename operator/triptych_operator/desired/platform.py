"""What the operator knows beside the resource: its own settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from triptych_operator.api.service import MultimodalService

# Where the Prometheus operator's own examples have it.
DEFAULT_PROMETHEUS: Final = "http://prometheus-operated.monitoring.svc:9090"


class Metrics(StrEnum):
    """By which way autoscalers get at what the pods measure."""

    EMBEDDED = "embedded"  # the operator serves it
    PROMETHEUS = "prometheus"  # an adapter serves what Prometheus has recorded
    KEDA = "keda"  # KEDA asks Prometheus, and makes the autoscalers
    NONE = "none"  # by none


@dataclass(frozen=True, slots=True)
class Platform:
    """Settings of the operator that reach into manifests."""

    image: str  # of all tiers, unless the resource names another
    pull_policy: str = "IfNotPresent"
    metrics: Metrics = Metrics.EMBEDDED
    prometheus_url: str = DEFAULT_PROMETHEUS  # that KEDA asks
    operator_namespace: str | None = None  # of its pods; None: it is not one of the cluster's
    installation: str | None = None  # namespace that tells it from other operators, if any does

    def image_of(self, service: MultimodalService) -> str:
        """The image that all pods of ``service`` run."""
        return service.spec.engine.image or self.image
