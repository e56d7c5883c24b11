"""Contiguous ranges of one fixed space: bytes of an arena, tokens of a KV pool.

Not thread-safe; its owner guards it.
"""

from __future__ import annotations

from bisect import bisect_left


class RangeAllocator:
    """Hands out ranges of ``[0, size)``, first fit; neighbouring free ranges are always one.

    ``allocate`` and ``free`` mutate; everything else only looks.
    """

    def __init__(self, size: int) -> None:
        if size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        self.size = size
        self.used = 0  # units handed out
        self._taken: dict[int, int] = {}  # start -> length
        # Free ranges in order of their start; two lists, so that bisect sees plain integers.
        self._starts: list[int] = [0] if size else []
        self._lengths: list[int] = [size] if size else []

    @property
    def largest_free(self) -> int:
        """The most that one ``allocate`` could get now."""
        return max(self._lengths, default=0)

    def starts(self) -> set[int]:
        """Starts of all ranges that are handed out."""
        return set(self._taken)

    def length_of(self, start: int) -> int:
        """Length of the range handed out at ``start``.

        Raises:
            KeyError: no range was handed out there.
        """
        return self._taken[start]

    def allocate(self, length: int) -> int | None:
        """Start of the first free range of ``length`` units, or None when there is none.

        Raises:
            ValueError: ``length`` is not positive.
        """
        if length <= 0:
            raise ValueError(f"length must be positive, got {length}")
        for index, free in enumerate(self._lengths):
            if free >= length:
                return self._take(index, length)
        return None

    def free(self, start: int) -> None:
        """Takes the range at ``start`` back.

        Raises:
            KeyError: no range was handed out there.
        """
        length = self._taken.pop(start)
        self.used -= length
        index = bisect_left(self._starts, start)
        self._starts.insert(index, start)
        self._lengths.insert(index, length)
        self._join(index)
        if index:
            self._join(index - 1)

    def check_integrity(self) -> None:
        """Walks the whole space.

        Raises:
            RuntimeError: ranges overlap, leave a gap, are not joined, or do not add up.
        """
        free = dict(zip(self._starts, self._lengths, strict=True))
        position, previous_free = 0, False
        for start, length in sorted([*free.items(), *self._taken.items()]):
            if start != position or length <= 0:
                raise RuntimeError(f"range [{start}, +{length}) does not follow {position}")
            if previous_free and start in free:
                raise RuntimeError(f"free ranges meet at {start} and are not one")
            position, previous_free = start + length, start in free
        if position != self.size or self.used != sum(self._taken.values()):
            raise RuntimeError(f"ranges end at {position} of {self.size}, {self.used} counted used")

    def _take(self, index: int, length: int) -> int:
        start = self._starts[index]
        if self._lengths[index] == length:
            del self._starts[index], self._lengths[index]
        else:
            self._starts[index] += length
            self._lengths[index] -= length
        self._taken[start] = length
        self.used += length
        return start

    def _join(self, index: int) -> None:
        """Makes free range ``index`` and its successor one, if they meet."""
        after = index + 1
        if after == len(self._starts):
            return
        if self._starts[index] + self._lengths[index] == self._starts[after]:
            self._lengths[index] += self._lengths[after]
            del self._starts[after], self._lengths[after]
