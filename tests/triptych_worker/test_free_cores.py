from __future__ import annotations

from collections.abc import Iterator

import pytest
from triptych_worker import free_cores
from triptych_worker.free_cores import FreeCores, Reading, between, read


@pytest.mark.parametrize(
    ("used", "idle", "cores"),
    [
        (0.0, 2.0, 2),  # nobody does anything
        (1.0, 0.9, 2),  # one thread of ours, the other core is free
        (1.8, 0.1, 2),  # two of ours, hardly anybody else
        (0.9, 0.1, 1),  # others have the other core
        (0.4, 0.0, 1),  # and a part of this one
        (1.0, 0.7, 1),  # too much of the other for a second thread to keep up
        (1.0, 0.76, 2),
        (0.0, 0.0, 1),
        (3.0, 60.0, 2),  # never more than was granted
    ],
)
def test_what_is_used_and_what_idles_can_be_counted_on(
    used: float, idle: float, cores: int
) -> None:
    assert between(Reading(5.0, 7.0, 9.0), Reading(6.0, 7.0 + used, 9.0 + idle), 2) == cores


def test_the_kernel_tells_totals_that_grow() -> None:
    before, now = read(), read()
    assert before is not None
    assert now is not None
    assert before.at <= now.at
    assert before.idle <= now.idle
    assert before.used < now.used


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    at = [100.0]
    monkeypatch.setattr(free_cores.time, "monotonic", lambda: at[0])
    yield at


def test_it_looks_again_after_a_window_and_keeps_all_where_nothing_is_told(
    clock: list[float],
) -> None:
    told: list[Reading | None] = [Reading(100.0, 0.0, 0.0), Reading(100.3, 0.3, 0.0), None]
    free = FreeCores(2, lambda: told.pop(0))
    assert free.count() == 2
    clock[0] = 100.1
    assert free.count() == 2, "too soon"
    clock[0] = 100.3
    assert free.count() == 1
    clock[0] = 100.6
    assert free.count() == 1, "as before"
    assert FreeCores(3, lambda: None).count() == 3
    assert FreeCores(1, lambda: pytest.fail("one is always counted on")).count() == 1


def test_what_is_forgotten_is_counted_on_until_the_next_window_is_over(clock: list[float]) -> None:
    told = [Reading(100.0, 0.0, 0.0), Reading(107.0, 0.1, 0.0), Reading(107.3, 0.4, 0.0)]
    free = FreeCores(2, lambda: told.pop(0))
    clock[0] = 107.0
    free.forget()
    assert free.count() == 2, "others had the cores for seven seconds, but what of now"
    clock[0] = 107.3
    assert free.count() == 1
    assert told == []
