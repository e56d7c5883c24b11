"""Which tier holds up the others: the one whose signals are furthest above their targets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triptych_contract.names import Tier

BEGINS: Final = 1.1  # times the target: where an autoscaler begins to act
ENDS: Final = 0.9
TAKES_OVER: Final = 1.25  # times the pressure of the tier that was limiting before


def limiting_tier(pressures: Mapping[Tier, float], previous: Tier | None) -> Tier | None:
    """The tier that limits now, or none. It stays so until it is well below its targets, or
    another is well above it, so that it does not change with every look.

    Args:
        pressures: of each tier, its signal that is furthest above its target, 1 being there.
    """
    tier = max(pressures, key=lambda one: pressures[one], default=None)
    before = pressures.get(previous, 0.0) if previous is not None else 0.0
    if before < ENDS:
        return tier if tier is not None and pressures[tier] >= BEGINS else None
    if tier is not None and pressures[tier] >= max(BEGINS, TAKES_OVER * before):
        return tier
    return previous
