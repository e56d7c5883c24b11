"""What a resource says about scaling, as far as it takes a look at signals. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from triptych_contract.names import Tier

from triptych_operator.api.autoscaling import Signal
from triptych_operator.api.quantities import parse_quantity
from triptych_operator.api.scalars import parse_seconds
from triptych_operator.api.service import MultimodalService, ServiceSpec
from triptych_operator.desired.targets import is_shared, metrics_of


@dataclass(frozen=True, slots=True)
class Target:
    """One signal and where to keep it: the value itself, or each pod's share of it."""

    signal: Signal
    target: float
    shared: bool


@dataclass(frozen=True, slots=True)
class TierPolicy:
    """One tier. Without autoscaling it has the targets that it would have by default."""

    tier: Tier
    targets: tuple[Target, ...]
    scaled: bool = False  # it has autoscaling, which acts or advises
    acts: bool = False
    min: int = 1
    max: int = 1


@dataclass(frozen=True, slots=True)
class Policy:
    """All tiers of a resource, and after how many seconds without pictures encoders rest."""

    tiers: tuple[TierPolicy, ...]
    rest_after: float | None = None

    def of(self, tier: Tier) -> TierPolicy | None:
        """What is said of ``tier``; ``None`` when the topology has none."""
        return next((one for one in self.tiers if one.tier is tier), None)


def policy_of(service: MultimodalService) -> Policy:
    """What ``service`` says."""
    spec = service.spec
    return Policy(
        tiers=tuple(_tier(spec, tier) for tier in spec.topology.tiers),
        rest_after=_rest_after(spec),
    )


def ratios(targets: tuple[Target, ...], values: Mapping[Signal, float], pods: int) -> list[float]:
    """How far each signal that was measured is above its target, 1 being there.

    Args:
        pods: among which what is shared is shared out.
    """
    return [
        values[one.signal] / (one.target * max(pods, 1) if one.shared else one.target)
        for one in targets
        if one.signal in values
    ]


def _tier(spec: ServiceSpec, tier: Tier) -> TierPolicy:
    targets = tuple(
        Target(one.signal, float(parse_quantity(one.target)), is_shared(one))
        for one in metrics_of(spec, tier)
    )
    autoscaling = spec.tier(tier).autoscaling
    if autoscaling is None:
        return TierPolicy(tier, targets)
    return TierPolicy(
        tier, targets, scaled=True, acts=autoscaling.acts, min=autoscaling.min, max=autoscaling.max
    )


def _rest_after(spec: ServiceSpec) -> float | None:
    autoscaling = spec.encoder.autoscaling
    if Tier.ENCODER not in spec.topology.tiers or autoscaling is None or not autoscaling.acts:
        return None
    after = autoscaling.scale_to_zero_after
    return parse_seconds(after) if after is not None else None
