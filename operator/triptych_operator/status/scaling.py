"""What the status says of what pods measure: rounded, anew only when it is worth a write. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triptych_contract.names import Tier

from triptych_operator.api.autoscaling import Signal
from triptych_operator.api.status import (
    CachesStatus,
    CacheUseStatus,
    ScalingStatus,
    ServiceStatus,
    SignalStatus,
)
from triptych_operator.json_values import Json, JsonObject
from triptych_operator.observed.snapshot import Snapshot, TierSnapshot
from triptych_operator.scaling.advice import advice
from triptych_operator.scaling.limiting import limiting_tier
from triptych_operator.scaling.policy import Policy, TierPolicy, ratios
from triptych_operator.signals.board import TierSignals
from triptych_operator.status.caches import is_used, use_of
from triptych_operator.status.rounding import MATERIAL, rounded


@dataclass(frozen=True, slots=True)
class Said:
    """The part of a resource's status that is about what its pods measure."""

    limiting_tier: Tier | None = None
    scaling: tuple[ScalingStatus, ...] = ()
    caches: tuple[CacheUseStatus, ...] = ()

    @staticmethod
    def by(status: ServiceStatus) -> Said:
        """What a status says."""
        caches = status.caches or CachesStatus()
        return Said(status.limiting_tier, status.scaling or (), caches.use)


def said_of(
    policy: Policy, signals: Mapping[Tier, TierSignals], snapshot: Snapshot, previous: Said
) -> Said:
    """What to say of ``signals``, of which those of a tier that cannot be read are missing.

    Args:
        previous: what is said now; a tier that limits goes on to, unless it is clear that it
            does not.
    """
    pressures = {
        tier.tier: max(found)
        for tier in policy.tiers
        if tier.tier in signals and (found := _ratios(tier, signals, snapshot))
    }
    told = [
        _of_tier(tier, signals[tier.tier], snapshot.tier(tier.tier))
        for tier in policy.tiers
        if tier.scaled and tier.tier in signals
    ]
    limiting = limiting_tier(pressures, previous.limiting_tier) if pressures else None
    return Said(
        limiting,
        tuple(one for one in told if one.signals or one.advised is not None),
        use_of(signals.values()),
    )


def dumped(said: Said) -> JsonObject:
    """What to write of the status; what is not said has not been measured."""
    use: list[Json] = [one.model_dump(mode="json", by_alias=True) for one in said.caches]
    status = ServiceStatus(limiting_tier=said.limiting_tier, scaling=said.scaling)
    told: JsonObject = status.model_dump(
        mode="json", by_alias=True, include={"limiting_tier", "scaling"}, exclude_none=True
    )
    return told | {"caches": {"use": use}} if use else told


def is_news(new: Said, old: Said) -> bool:
    """Whether a status that says ``old`` should be written anew."""
    return (
        new.limiting_tier != old.limiting_tier
        or _outline(new.scaling) != _outline(old.scaling)
        or any(
            _differs(one, other)
            for tier, before in zip(new.scaling, old.scaling, strict=True)
            for one, other in zip(tier.signals, before.signals, strict=True)
        )
        or is_used(new.caches, old.caches)
    )


def _ratios(
    tier: TierPolicy, signals: Mapping[Tier, TierSignals], snapshot: Snapshot
) -> list[float]:
    return ratios(tier.targets, signals[tier.tier].values, snapshot.tier(tier.tier).desired)


def _of_tier(tier: TierPolicy, signals: TierSignals, standing: TierSnapshot) -> ScalingStatus:
    pods = max(standing.desired, 1)
    shown = tuple(
        SignalStatus(
            name=one.signal,
            value=rounded(signals.values[one.signal] / (pods if one.shared else 1)),
            target=rounded(one.target),
        )
        for one in tier.targets
        if one.signal in signals.values
    )
    if tier.acts:
        return ScalingStatus(name=tier.tier, signals=shown)
    ready = sum(pod.ready and not pod.terminating for pod in standing.pods)
    found = advice(tier, signals.values, standing.desired, ready)
    return ScalingStatus(
        name=tier.tier,
        signals=shown,
        advised=found.pods,
        advised_by=found.signal,
        advised_without=found.without or None,
    )


def _outline(scaling: Sequence[ScalingStatus]) -> list[object]:
    """All but the values."""
    return [
        (one.name, one.advised, one.advised_by, one.advised_without, _targets(one))
        for one in scaling
    ]


def _targets(scaling: ScalingStatus) -> list[tuple[Signal, str]]:
    return [(one.name, one.target) for one in scaling.signals]


def _differs(new: SignalStatus, old: SignalStatus) -> bool:
    before = float(old.value)
    return abs(float(new.value) - before) > MATERIAL * max(before, float(old.target))
