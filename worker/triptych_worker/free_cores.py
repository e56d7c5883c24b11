"""How many cores this process can count on: what it used of late, and what nobody used.

Where processes share cores, an operation that is split between two threads waits for the later one,
and so for whoever else is on its core: with all cores busy one thread is done sooner than two, at
two thirds of the processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Long against the hundredths of a second that the kernel tells, short against an answer.
_WINDOW_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Reading:
    """Running totals in seconds: of time, of this process's processor time, of idle cores."""

    at: float
    used: float
    idle: float


def read() -> Reading | None:
    """The totals now; None where the kernel does not tell."""
    try:
        idle = Path("/proc/uptime").read_text().split()[1]
    except (OSError, IndexError):
        return None
    return Reading(time.monotonic(), time.process_time(), float(idle))


class FreeCores:
    """Looks at the totals now and then.

    Args:
        most: that are ever counted on.
        reading: tells the totals.
    """

    def __init__(self, most: int, reading: Callable[[], Reading | None] = read) -> None:
        self.most = self._count = most
        self._reading = reading
        self._before = reading() if most > 1 else None

    def forget(self) -> None:
        """Counts on all until the next window is over: what was used while this process had nothing
        to do tells nothing of now."""
        self._count = self.most
        if self._before is not None:
            self._before = self._reading()

    def count(self) -> int:
        """Cores of the last window, at least 1."""
        if self._before is None or time.monotonic() - self._before.at < _WINDOW_SECONDS:
            return self._count
        now = self._reading()
        if now is not None:
            self._count = between(self._before, now, self.most)
        self._before = now
        return self._count


def between(before: Reading, now: Reading, most: int) -> int:
    """What this process used and what idled between two readings; three quarters make a core."""
    free = (now.used - before.used + now.idle - before.idle) / (now.at - before.at)
    return max(1, min(most, int(free + 0.25)))
