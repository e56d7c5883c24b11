"""Which rows of a packed batch attend to each other, as arithmetic on lengths. No tensors.

Attention inside a vision part is full within short segments of the packed rows: a frame, or a
window of one. Segments of equal length that lie side by side are one run, and a run is one batched
attention call on a view of the rows: nothing is gathered or copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Run:
    """``count`` segments of ``length`` rows each, side by side from row ``start`` on."""

    start: int
    count: int
    length: int

    @property
    def stop(self) -> int:
        """One past the last row."""
        return self.start + self.count * self.length


def runs(lengths: Iterable[int]) -> tuple[Run, ...]:
    """The fewest runs that cover segments of these lengths, which lie side by side from row 0 on.

    Empty segments are left out.
    """
    found = []
    start = 0
    for length, group in groupby(length for length in lengths if length):
        run = Run(start, len(list(group)), length)
        found.append(run)
        start = run.stop
    return tuple(found)


def windows(height: int, width: int, side: int) -> list[list[int]]:
    """Splits a grid of ``height`` x ``width`` cells into windows of at most ``side`` x ``side``.

    Each window lists its cells (row * width + column) in reading order. The largest windows come
    first: whole ones, then those cut by an edge, so that equal ones lie side by side.
    """
    found = [
        [
            row * width + column
            for row in range(top, min(top + side, height))
            for column in range(left, min(left + side, width))
        ]
        for top in range(0, height, side)
        for left in range(0, width, side)
    ]
    return sorted(found, key=len, reverse=True)


def chunks(sizes: Sequence[int], limit: int) -> list[range]:
    """Consecutive items whose sizes add up to at most ``limit``; a larger one is alone."""
    found: list[range] = []
    first = total = 0
    for index, size in enumerate(sizes):
        if index > first and total + size > limit:
            found.append(range(first, index))
            first, total = index, 0
        total += size
    if first < len(sizes):
        found.append(range(first, len(sizes)))
    return found
