"""What one pod told within a window."""

from __future__ import annotations

import pytest
from signals.readings import history
from triptych_contract.names import Metric
from triptych_operator.signals.history import History
from triptych_operator.signals.page import Reading, Series

IMAGES = Series(Metric.IMAGES)
WAITING = Series(Metric.WAITING)


@pytest.mark.parametrize(
    ("totals", "increase"),
    [
        ([], 0),
        ([7], 0),
        ([5, 5], 0),
        ([5, 9, 12], 7),
        ([100, 103, 2, 6], 3 + 2 + 4),  # its process began anew after 103
        ([3, 0], 0),
    ],
)
def test_a_counter_grows_also_when_its_process_begins_anew(
    totals: list[float], increase: float
) -> None:
    assert history(*({IMAGES: total} for total in totals)).increase(IMAGES) == increase


def test_a_counter_that_appears_has_grown_from_zero() -> None:
    assert history({}, {IMAGES: 4}).increase(IMAGES) == 4


def test_what_is_older_than_the_window_is_forgotten() -> None:
    pod = history({IMAGES: 1}, {IMAGES: 2}, {IMAGES: 4}, {IMAGES: 8})
    pod.forget_before(40.0)
    assert (pod.increase(IMAGES), pod.seconds, pod.last_at) == (6, 20, 30)
    pod.forget_before(60.1)
    assert (pod.increase(IMAGES), pod.seconds, pod.last_at) == (0, 0, None)
    assert pod.now(IMAGES) is None
    assert pod.least(WAITING) == 0


def test_of_a_gauge_the_latest_and_the_lesser_end_are_told() -> None:
    pod = history({WAITING: 5}, {WAITING: 0}, {WAITING: 3})
    assert pod.now(WAITING) == 3
    assert pod.least(WAITING) == 3
    assert pod.now(IMAGES) is None


def test_its_readings_are_bounded_whatever_the_pace() -> None:
    pod = History(window=1e9)
    for number in range(1000):
        pod.add(Reading(float(number), {IMAGES: float(number)}))
    assert pod.increase(IMAGES) == 63
