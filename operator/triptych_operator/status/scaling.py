"""What the status says of signals: rounded, and anew only when it is worth a write. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from triptych_contract.names import Tier

from triptych_operator.api.status import ScalingStatus, ServiceStatus, SignalStatus
from triptych_operator.observed.snapshot import Snapshot, TierSnapshot
from triptych_operator.scaling.advice import advice
from triptych_operator.scaling.limiting import limiting_tier
from triptych_operator.scaling.policy import Policy, TierPolicy, ratios
from triptych_operator.signals.board import TierSignals

_MATERIAL: Final = 0.1  # of a value or its target: less is not worth a write


@dataclass(frozen=True, slots=True)
class Said:
    """The part of a resource's status that is about signals."""

    limiting_tier: Tier | None = None
    scaling: tuple[ScalingStatus, ...] = ()

    @staticmethod
    def by(status: ServiceStatus) -> Said:
        """What a status says."""
        return Said(status.limiting_tier, status.scaling or ())


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
    return Said(limiting, tuple(one for one in told if one.signals or one.advised is not None))


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
    return ScalingStatus(name=tier.tier, signals=shown, advised=found.pods, advised_by=found.signal)


def rounded(value: float) -> str:
    """Three digits: ``0.482``, ``12.5``, ``20500``."""
    return f"{float(f'{value:.3g}'):f}".rstrip("0").rstrip(".") or "0"


def _outline(scaling: Sequence[ScalingStatus]) -> list[object]:
    """All but the values."""
    return [
        (one.name, one.advised, one.advised_by, [(it.name, it.target) for it in one.signals])
        for one in scaling
    ]


def _differs(new: SignalStatus, old: SignalStatus) -> bool:
    before = float(old.value)
    return abs(float(new.value) - before) > _MATERIAL * max(before, float(old.target))
