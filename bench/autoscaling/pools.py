"""Pools of pods that are simulated, event by event.

A pool has one queue that all its pods take from, which is what a gateway that always asks the least
busy pod comes to. A pod encodes or prefills one request at a time; a pod decodes all that it holds,
in steps that take longer the more there are. Times are seconds of the simulated clock.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from triptych_contract.names import Metric, Stage
from triptych_operator.signals.page import Series

from bench.autoscaling.trips import Trip

Done = Callable[[Trip], None]


class Clock:
    """Simulated time, and what is due when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Has ``action`` called at ``when``, after what was due then already."""
        heapq.heappush(self._due, (when, next(self._numbers), action))

    def run(self, until: float) -> None:
        """Lets time pass, with all that is due by ``until``."""
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heapq.heappop(self._due)
            action()
        self.now = until


class Pods:
    """How many pods serve, and how many are on their way."""

    def __init__(self, clock: Clock, first: int, start_seconds: float) -> None:
        self.ready = first
        self.starting = 0
        self.most = first
        self.changed: Callable[[], None] = lambda: None
        self._clock = clock
        self._start_seconds = start_seconds
        self._given_up = 0  # of those on their way: their start comes to nothing
        self._pod_seconds, self._counted = 0.0, 0.0

    @property
    def current(self) -> int:
        """All that were asked for."""
        return self.ready + self.starting

    @property
    def pod_seconds(self) -> float:
        """What all pods so far have cost, from the moment they were asked for."""
        self._count()
        return self._pod_seconds

    def scale(self, wanted: int) -> None:
        """Asks for so many. Fewer takes those on their way first; the others finish their work."""
        self._count()
        more = wanted - self.current
        self.most = max(self.most, wanted)
        if more > 0:
            self.starting += more
            self._clock.at(self._clock.now + self._start_seconds, lambda: self._come(more))
            return
        given_up = min(-more, self.starting)
        self.starting -= given_up
        self._given_up += given_up
        self.ready += more + given_up
        self.changed()

    def _come(self, count: int) -> None:
        self._count()
        lost = min(count, self._given_up)
        self._given_up -= lost
        self.starting -= count - lost
        self.ready += count - lost
        self.changed()

    def _count(self) -> None:
        now = self._clock.now
        self._pod_seconds += (now - self._counted) * self.current
        self._counted = now


@dataclass(slots=True)
class Waits:
    """The counters of one queue."""

    stage: Stage
    seconds: float = 0.0
    requests: int = 0

    def over(self, seconds: float) -> None:
        """One request has waited so long."""
        self.seconds += seconds
        self.requests += 1

    def values(self) -> dict[Series, float]:
        """As a worker exposes them."""
        return {
            Series(f"{Metric.STAGE_SECONDS}_sum", self.stage): self.seconds,
            Series(f"{Metric.STAGE_SECONDS}_count", self.stage): self.requests,
        }


class Work:
    """The time that pods compute for one stage."""

    def __init__(self, clock: Clock, stage: Stage) -> None:
        self._clock = clock
        self._stage = stage
        self._busy = 0
        self._seconds = self._counted = 0.0

    def change(self, pods: int) -> None:
        """So many pods more, or fewer, compute from now on."""
        self._count()
        self._busy += pods

    def values(self) -> dict[Series, float]:
        """As workers expose it."""
        self._count()
        return {Series(Metric.BUSY_SECONDS, self._stage): self._seconds}

    def _count(self) -> None:
        self._seconds += (self._clock.now - self._counted) * self._busy
        self._counted = self._clock.now


class Pool(Protocol):
    """One tier."""

    pods: Pods

    def join(self, trip: Trip) -> None:
        """Takes a request, or refuses it."""
        ...

    def values(self) -> Mapping[Series, float]:
        """What a page of all its pods together would say."""
        ...

    @property
    def inside(self) -> int:
        """Requests that wait or are worked on."""
        ...
