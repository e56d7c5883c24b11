"""Whether encoders are needed: none are while no picture comes. Pure; times are of any one clock.

An autoscaler leaves a Deployment of no pods alone, so no pods is what rest is, and to wake is to
set the fewest that the resource asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from triptych_operator.api.autoscaling import Signal
from triptych_operator.scaling.policy import TierPolicy
from triptych_operator.signals.board import TierSignals

_DEMAND: Final = (
    Signal.PICTURE_REQUESTS_PER_SECOND,
    Signal.REQUESTS_WITHOUT_ENCODER,
    Signal.BACKLOG_TOKENS,
)


class Move(Enum):
    """What to do with the number of pods."""

    NONE = "none"
    REST = "rest"
    WAKE = "wake"


@dataclass(frozen=True, slots=True)
class Quiet:
    """Since when no picture has come; ``None``: they come, or there is no telling."""

    since: float | None = None

    def after(self, signals: TierSignals | None, now: float) -> Quiet:
        """With what is heard now."""
        if signals is None or demand(signals) is not False:
            return Quiet()
        return self if self.since is not None else Quiet(now)


def demand(signals: TierSignals) -> bool | None:
    """Whether pictures ask for an encoder; ``None`` when a gateway could not be asked."""
    if any(signals.values.get(one) for one in _DEMAND) or any(signals.work.values()):
        return True
    heard = all(
        one in signals.values
        for one in (Signal.PICTURE_REQUESTS_PER_SECOND, Signal.REQUESTS_WITHOUT_ENCODER)
    )
    return False if heard and signals.answering == signals.pods else None


def move(
    policy: TierPolicy,
    rest_after: float | None,
    *,
    desired: int,
    draining: bool,
    quiet: float,
    wanted: bool,
) -> Move:
    """What to do with a tier of ``desired`` pods.

    Args:
        rest_after: seconds of quiet; ``None``: it never rests.
        draining: pods of it are still going.
        quiet: seconds for which no picture has come.
        wanted: a picture asks for an encoder now.
    """
    if not policy.acts:
        return Move.NONE
    if desired == 0:
        return Move.WAKE if wanted or rest_after is None else Move.NONE
    if rest_after is not None and quiet >= rest_after and not draining:
        return Move.REST
    return Move.NONE
