from __future__ import annotations

import math

import pytest
from triptych_worker.language.pace import Pace


@pytest.mark.parametrize(
    ("now", "rest"), [(8.0, 0.5), (8.125, 0.375), (8.5, 0.0), (8.75, 0.0), (100.0, 0.0)]
)
def test_where_others_have_the_cores_it_rests_for_what_is_left(now: float, rest: float) -> None:
    assert Pace(0.5, most=2).rest(now, 8.0, free_cores=1) == rest


def test_the_first_step_begins_at_once() -> None:
    assert Pace(0.5, most=2).rest(0.0, -math.inf, free_cores=1) == 0


@pytest.mark.parametrize(
    ("seconds", "most", "free_cores"), [(0.5, 2, 2), (0.5, 8, 7), (0.5, 1, 1), (0.0, 2, 1)]
)
def test_it_rests_neither_where_cores_are_free_nor_where_there_is_but_one_nor_without_a_pace(
    seconds: float, most: int, free_cores: int
) -> None:
    assert Pace(seconds, most).rest(8.0, 8.0, free_cores) == 0
