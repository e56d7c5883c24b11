"""Events only on what matters, each once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_operator.api.status import Condition, ConditionType, ServiceStatus
from triptych_operator.status.announcements import Announcement, announcements

NOW = "2026-01-01T00:00:00Z"


def condition(type_: ConditionType, status: str, reason: str, message: str = "m") -> Condition:
    return Condition.model_validate(
        {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": NOW,
        }
    )


def status(*conditions: Condition) -> ServiceStatus:
    return ServiceStatus(conditions=conditions)


def rolling(message: str = "m") -> ServiceStatus:
    return status(
        condition(ConditionType.READY, "False", "TiersNotReady", message),
        condition(ConditionType.RECONCILING, "True", "RollingOut", message),
    )


def stalled(reason: str, message: str = "m") -> ServiceStatus:
    return status(
        condition(ConditionType.READY, "False", reason, message),
        condition(ConditionType.STALLED, "True", reason, message),
    )


def warning(reason: str, message: str = "m") -> Announcement:
    return Announcement("Warning", reason, message)


NEW, READY = ServiceStatus(), status(condition(ConditionType.READY, "True", "AllTiersReady"))
BECAME_READY = Announcement("Normal", "Ready", "m")

CASES: dict[str, tuple[ServiceStatus, ServiceStatus, list[Announcement]]] = {
    "a new resource on its way": (NEW, rolling(), []),
    "it becomes ready": (rolling(), READY, [BECAME_READY]),
    "it is ready at the first look": (NEW, READY, [BECAME_READY]),
    "it stays ready": (READY, READY, []),
    "it makes progress": (rolling("1 of 3"), rolling("2 of 3"), []),
    "it ceases to be ready": (
        READY, rolling("0 of 1"), [Announcement("Normal", "TiersNotReady", "0 of 1")]
    ),
    "it needs somebody": (
        rolling(), stalled("Forbidden", "no quota"), [warning("Forbidden", "no quota")]
    ),
    "it needs somebody at once": (READY, stalled("Forbidden"), [warning("Forbidden")]),
    "it needs somebody still": (stalled("Forbidden"), stalled("Forbidden", "other words"), []),
    "it needs somebody for another reason": (
        stalled("Forbidden"), stalled("Invalid"), [warning("Invalid")]
    ),
    "it is healed": (stalled("Forbidden"), READY, [BECAME_READY]),
    "it goes on": (stalled("Forbidden"), rolling(), []),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "told"), CASES.values(), ids=CASES.keys())
def test_it_is_told_when(
    before: ServiceStatus, after: ServiceStatus, told: list[Announcement]
) -> None:
    assert announcements(before, after) == told


STATUSES = st.sampled_from([NEW, READY, rolling(), rolling("x"), stalled("A"), stalled("B")])


@given(st.lists(STATUSES, max_size=8))
def test_no_two_events_in_a_row_say_the_same(history: list[ServiceStatus]) -> None:
    told = [one for pair in pairwise([NEW, *history]) for one in announcements(*pair)]
    ready = [one for one in told if one.reason == "Ready"]
    flips = sum(
        after is READY and before is not READY for before, after in pairwise([NEW, *history])
    )
    assert len(ready) == flips


@given(STATUSES)
def test_a_look_that_finds_nothing_new_tells_nothing(seen: ServiceStatus) -> None:
    assert announcements(seen, seen) == []
