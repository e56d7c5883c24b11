"""What is worth an Event: changes of the status that a person would want to be told of. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from triptych_operator.api.status import Condition, ConditionType, ServiceStatus
from triptych_operator.scaling.rest import Move


@dataclass(frozen=True, slots=True)
class Announcement:
    """One Event about the resource."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def announcements(previous: ServiceStatus, current: ServiceStatus) -> list[Announcement]:
    """What to tell when the status goes from ``previous`` to ``current``: that the resource
    became ready, ceased to be, or waits for somebody, each once and not on every look."""
    ready_before = _find(previous, ConditionType.READY)
    ready = _find(current, ConditionType.READY)
    stalled_before = _find(previous, ConditionType.STALLED)
    stalled = _find(current, ConditionType.STALLED)
    found = []
    if stalled and (stalled_before is None or stalled_before.reason != stalled.reason):
        found.append(Announcement("Warning", stalled.reason, stalled.message))
    if _is_true(ready) and not _is_true(ready_before) and ready is not None:
        found.append(Announcement("Normal", "Ready", ready.message))
    if _is_true(ready_before) and ready is not None and not _is_true(ready) and not stalled:
        found.append(Announcement("Normal", ready.reason, ready.message))
    return found


def of_encoders(move: Move, pods: int, rest_after: float | None) -> Announcement:
    """What to tell when encoders have gone to rest, or been woken.

    Args:
        pods: that there are to be now.
        rest_after: seconds without a picture; ``None``: they are not to rest any more.
    """
    if move is Move.REST:
        message = f"no picture for {rest_after:.0f} s: the encoder tier goes to no pods"
        return Announcement("Normal", "EncodersRest", message)
    cause = "a picture has come" if rest_after is not None else "scaleToZeroAfter is not set"
    message = f"{cause}: the encoder tier goes to {pods} {'pod' if pods == 1 else 'pods'}"
    return Announcement("Normal", "EncodersWake", message)


def _find(status: ServiceStatus, kind: ConditionType) -> Condition | None:
    return next((one for one in status.conditions if one.type == kind), None)


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"
