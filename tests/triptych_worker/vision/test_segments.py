import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_worker.vision.segments import Run, chunks, runs, windows


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], ()),
        ([0, 0], ()),
        ([4], (Run(0, 1, 4),)),
        ([4, 4, 4], (Run(0, 3, 4),)),
        ([4, 4, 2, 4], (Run(0, 2, 4), Run(8, 1, 2), Run(10, 1, 4))),
        ([4, 0, 4], (Run(0, 2, 4),)),
    ],
)
def test_runs_join_equal_neighbours(lengths: list[int], expected: tuple[Run, ...]) -> None:
    assert runs(lengths) == expected


@given(st.lists(st.integers(0, 9), max_size=30))
def test_runs_cover_every_row_once_and_in_order(lengths: list[int]) -> None:
    found = runs(lengths)
    rows = [row for run in found for row in range(run.start, run.stop)]
    assert rows == list(range(sum(lengths)))
    assert [run.length for run in found for _ in range(run.count)] == [n for n in lengths if n]


def test_windows_of_a_grid_that_they_do_not_divide() -> None:
    assert windows(3, 3, 2) == [[0, 1, 3, 4], [2, 5], [6, 7], [8]]


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 5))
def test_windows_hold_every_cell_once_and_shrink(height: int, width: int, side: int) -> None:
    found = windows(height, width, side)
    assert sorted(cell for window in found for cell in window) == list(range(height * width))
    sizes = [len(window) for window in found]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) <= side**2


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ([], 10, []),
        ([10], 10, [range(1)]),
        ([11], 10, [range(1)]),
        ([4, 4, 4], 10, [range(2), range(2, 3)]),
        ([4, 20, 4, 6], 10, [range(1), range(1, 2), range(2, 4)]),
    ],
)
def test_chunks_stay_within_the_limit_but_for_an_item_that_exceeds_it_alone(
    sizes: list[int], limit: int, expected: list[range]
) -> None:
    assert chunks(sizes, limit) == expected
