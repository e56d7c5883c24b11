"""All manifests of a resource."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from triptych_contract.names import Tier

from triptych_operator.api.service import MultimodalService
from triptych_operator.desired.access import service_account
from triptych_operator.desired.autoscalers import autoscaler
from triptych_operator.desired.configmaps import config_map, configuration, digest
from triptych_operator.desired.deployments import deployment
from triptych_operator.desired.disruption import disruption_budget
from triptych_operator.desired.network import network_policy
from triptych_operator.desired.platform import Metrics, Platform
from triptych_operator.desired.scaledobjects import scaled_object
from triptych_operator.desired.services import service as service_of
from triptych_operator.json_values import JsonObject

AUTOSCALERS: Final = ("HorizontalPodAutoscaler", "ScaledObject")
# What pods need comes before them.
KINDS: Final = (
    "ServiceAccount",
    "ConfigMap",
    "NetworkPolicy",
    "Service",
    "PodDisruptionBudget",
    "Deployment",
    *AUTOSCALERS,
)


def desired_state(
    service: MultimodalService, platform: Platform, tiers: Sequence[Tier] | None = None
) -> list[JsonObject]:
    """What should exist for ``service``: in the order of ``KINDS``, then of ``tiers``.

    Equal arguments give equal lists, so a list that is applied twice changes nothing.

    Args:
        tiers: those to apply now (``rollout.step``), of the resource's topology; all if not given.
    """
    manifests = [service_account(service, platform)]
    for tier in service.spec.topology.tiers if tiers is None else tiers:
        manifests.extend(_of_tier(service, tier, platform))
    return sorted(manifests, key=lambda manifest: KINDS.index(str(manifest["kind"])))


def _of_tier(service: MultimodalService, tier: Tier, platform: Platform) -> Iterator[JsonObject]:
    config = configuration(service, tier, platform)
    yield config_map(service, tier, config)
    yield network_policy(service, tier, platform)
    yield service_of(service, tier)
    yield disruption_budget(service, tier)
    yield deployment(service, tier, platform, digest(config))
    autoscaling = service.spec.tier(tier).autoscaling
    if autoscaling is not None and autoscaling.acts:
        by_keda = platform.metrics is Metrics.KEDA
        yield (scaled_object if by_keda else autoscaler)(service, tier, autoscaling, platform)
