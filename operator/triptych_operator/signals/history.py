"""What one pod told lately, and what can be said from it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from triptych_operator.signals.page import Reading, Series

_MOST_READINGS: Final = 64  # of a pod, whatever the pace


class History:
    """The readings of one pod within the last ``window`` seconds, oldest first."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._readings: deque[Reading] = deque(maxlen=_MOST_READINGS)

    def add(self, reading: Reading) -> None:
        """Takes in the newest reading."""
        self._readings.append(reading)

    def forget_before(self, now: float) -> None:
        """Drops what is older than the window."""
        while self._readings and now - self._readings[0].at > self._window:
            self._readings.popleft()

    @property
    def last_at(self) -> float | None:
        """When it answered last, within the window."""
        return self._readings[-1].at if self._readings else None

    @property
    def seconds(self) -> float:
        """The time between its first and its last answer of the window: 0 with fewer than two."""
        return self._readings[-1].at - self._readings[0].at if self._readings else 0.0

    def now(self, series: Series) -> float | None:
        """The latest value of a gauge; ``None`` when the pod does not measure it."""
        return self._readings[-1].values.get(series) if self._readings else None

    def least(self, series: Series) -> float:
        """The smaller of a gauge's first and last values in the window."""
        if not self._readings:
            return 0.0
        ends = (self._readings[0], self._readings[-1])
        return min(one.values.get(series, 0.0) for one in ends)

    def increase(self, series: Series) -> float:
        """How much a counter has grown within the window. One that is less than before has begun
        anew with its process, from 0; one that is not on the page is 0 yet."""
        return sum(_growth(before, after) for before, after in pairwise(self._values(series)))

    def _values(self, series: Series) -> Iterator[float]:
        return (reading.values.get(series, 0.0) for reading in self._readings)


def _growth(before: float, after: float) -> float:
    return after - before if after >= before else after
