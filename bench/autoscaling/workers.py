"""Encoders and prefills that are simulated: a pod works on one request at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from triptych_contract.names import Metric, Stage
from triptych_operator.signals.page import Series

from bench.autoscaling.pools import Clock, Done, Pods, Waits, Work
from bench.autoscaling.trips import Trip


class Workers:
    """Encoders or prefills.

    Args:
        pods: that do the work.
        stage: the queue's; ``works`` is that of the work.
        seconds: what one request takes.
        tokens: what it counts for in the queue and in ``counter``.
        queue_tokens: what a pod lets wait before it refuses.
    """

    def __init__(
        self,
        clock: Clock,
        pods: Pods,
        stage: Stage,
        *,
        works: Stage,
        seconds: Callable[[Trip], float],
        tokens: Callable[[Trip], int],
        counter: str,
        queue_tokens: int,
        done: Done,
    ) -> None:
        self.pods = pods
        self._clock = clock
        self._waits = Waits(stage)
        self._spent = Work(clock, works)
        self._seconds, self._tokens = seconds, tokens
        self._counter, self._counted = counter, 0
        self._queue_tokens = queue_tokens
        self._done = done
        self._queue: deque[tuple[Trip, float]] = deque()
        self._waiting_tokens = self._busy = 0
        pods.changed = self._start

    @property
    def inside(self) -> int:
        """See ``Pool``."""
        return len(self._queue) + self._busy

    def join(self, trip: Trip) -> None:
        """See ``Pool``. An empty queue takes a request of any length."""
        tokens = self._tokens(trip)
        room = self._queue_tokens * max(1, self.pods.ready)
        if self._queue and self._waiting_tokens + tokens > room:
            trip.refused, trip.ended = True, self._clock.now
            return
        self._queue.append((trip, self._clock.now))
        self._waiting_tokens += tokens
        self._start()

    def values(self) -> Mapping[Series, float]:
        """See ``Pool``."""
        return {
            **self._waits.values(),
            **self._spent.values(),
            Series(self._counter): self._counted,
            Series(Metric.RUNNING): self._busy,
            Series(Metric.WAITING): len(self._queue),
            Series(Metric.BACKLOG_TOKENS): self._waiting_tokens,
        }

    def _start(self) -> None:
        while self._queue and self._busy < self.pods.ready:
            trip, joined = self._queue.popleft()
            self._waiting_tokens -= self._tokens(trip)
            self._waits.over(self._clock.now - joined)
            self._busy += 1
            self._spent.change(1)
            end = self._clock.now + self._seconds(trip)
            self._clock.at(end, lambda trip=trip: self._finish(trip))  # type: ignore[misc] # bound

    def _finish(self, trip: Trip) -> None:
        self._busy -= 1
        self._spent.change(-1)
        self._counted += self._tokens(trip)
        self._done(trip)
        self._start()
