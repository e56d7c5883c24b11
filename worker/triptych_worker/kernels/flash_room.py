"""Where a thread of ``flash`` keeps what it works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from triptych_worker.kernels.machine import LANES
from triptych_worker.kernels.vectors import Kind

QUERIES: Final = 64  # of an item: four blocks share what is prepared of keys and values
PANEL: Final = 256  # keys whose scores are in the cache at a time
VECTOR: Final = LANES * 4  # bytes of 16 sums


@dataclass(frozen=True, slots=True)
class Room:
    """Where a thread keeps what, in bytes from the beginning of its part of the scratch."""

    kind: Kind
    size: int  # of a head

    @property
    def steps(self) -> int:
        """Instructions that a product of two heads takes."""
        return self.size // self.kind.inputs

    @property
    def width(self) -> int:
        """Numbers of a head with what fills its last vector."""
        return _up(self.size, LANES)

    @property
    def block(self) -> int:
        """Bytes of one block of queries."""
        return _up(self.steps, LANES) * VECTOR

    @property
    def scores(self) -> int:
        """Of one block with a panel; what becomes of them takes their place."""
        return QUERIES // LANES * self.block

    @property
    def pairs(self) -> int:
        """Values of two keys at a time side by side, for types that are multiplied in pairs."""
        return self.scores + PANEL * VECTOR

    @property
    def highest(self) -> int:
        """Highest score of each query so far."""
        return self.pairs + (PANEL // 2 * self.width * 4 if self.kind.inputs == 2 else 0)

    @property
    def sums(self) -> int:
        """Of the exponentials of each query's scores so far."""
        return self.highest + QUERIES * 4

    @property
    def means(self) -> int:
        """Of the values, times the sums, number by number."""
        return self.sums + QUERIES * 4

    @property
    def spare(self) -> int:
        """Where the output of a block's missing queries goes."""
        return self.means + QUERIES * self.width * 4

    @property
    def whole(self) -> int:
        """All of it."""
        return _up(self.spare + self.width * 4, VECTOR)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
