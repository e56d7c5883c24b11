from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_worker.caches.ranges import RangeAllocator


def first_fit(cells: list[bool], length: int) -> int | None:
    """The model: one cell per unit, searched from the left."""
    for start in range(len(cells) - length + 1):
        if not any(cells[start : start + length]):
            return start
    return None


def longest_gap(cells: list[bool]) -> int:
    longest = current = 0
    for taken in cells:
        current = 0 if taken else current + 1
        longest = max(longest, current)
    return longest


@given(
    size=st.integers(0, 40),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=80),
)
def test_any_sequence_agrees_with_a_cell_by_cell_model(
    size: int, steps: list[tuple[bool, int]]
) -> None:
    ranges, cells, taken = RangeAllocator(size), [False] * size, dict[int, int]()
    for allocate, number in steps:
        if allocate:
            start = ranges.allocate(number)
            assert start == first_fit(cells, number)
            if start is not None:
                taken[start] = number
                cells[start : start + number] = [True] * number
        elif taken:
            start = sorted(taken)[number % len(taken)]
            length = taken.pop(start)
            ranges.free(start)
            cells[start : start + length] = [False] * length
        assert ranges.used == sum(cells)
        assert ranges.starts() == set(taken)
        assert ranges.largest_free == longest_gap(cells)
        ranges.check_integrity()


def test_three_neighbours_freed_in_any_order_become_one_range() -> None:
    ranges = RangeAllocator(30)
    first, second, third = (ranges.allocate(10) for _ in range(3))
    assert (first, second, third) == (0, 10, 20)
    assert ranges.allocate(1) is None
    for start in (0, 20, 10):
        ranges.free(start)
    assert ranges.largest_free == 30
    assert ranges.allocate(30) == 0


def test_the_first_hole_that_fits_is_taken() -> None:
    ranges = RangeAllocator(20)
    for length in (4, 2, 6, 2):
        ranges.allocate(length)
    ranges.free(0)
    ranges.free(6)
    assert ranges.allocate(5) == 6
    assert ranges.length_of(6) == 5


def test_freeing_twice_or_what_was_never_taken_is_refused() -> None:
    ranges = RangeAllocator(8)
    ranges.allocate(4)
    ranges.free(0)
    for start in (0, 3):
        with pytest.raises(KeyError):
            ranges.free(start)


@pytest.mark.parametrize("length", [0, -1])
def test_an_empty_range_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        RangeAllocator(8).allocate(length)


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        RangeAllocator(-1)


def test_a_damaged_account_is_found() -> None:
    ranges = RangeAllocator(8)
    ranges.allocate(4)
    ranges.used = 3
    with pytest.raises(RuntimeError, match="counted used"):
        ranges.check_integrity()
