"""Fused workers that are simulated: every pod does everything, and its work takes turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from triptych_contract.names import Metric, Stage
from triptych_operator.signals.page import Series

from bench.autoscaling.decoders import Answers, Room, fits
from bench.autoscaling.pools import Clock, Done, Pods, Waits, Work
from bench.autoscaling.trips import Costs, Trip


class Fused:
    """All stages in each pod.

    A pod that encodes or prefills takes turns with the answers that it writes: one turn of the
    work, one step of the answers.
    """

    def __init__(  # noqa: PLR0917 - what a pool is made of, all of it needed
        self, clock: Clock, pods: Pods, costs: Costs, room: Room, queue_tokens: int, done: Done
    ) -> None:
        self.pods = pods
        self._clock = clock
        self._costs = costs
        self._room = room
        self._queue_tokens = queue_tokens
        self._done = done
        self._waits = Waits(Stage.PREFILL_QUEUE)
        self._spent = Work(clock, Stage.PREFILL)
        self._counted = self._waiting_tokens = 0
        self._queue: deque[tuple[Trip, float]] = deque()
        self._turns: dict[Trip, float] = {}  # seconds of a turn, of what is in work
        self._answers = Answers(clock, self._pace, self._ended)
        pods.changed = self._start

    @property
    def inside(self) -> int:
        """See ``Pool``."""
        return len(self._queue) + len(self._turns) + len(self._answers)

    def join(self, trip: Trip) -> None:
        """See ``Pool``."""
        room = self._queue_tokens * max(1, self.pods.ready)
        if self._queue and self._waiting_tokens + trip.prompt_tokens > room:
            trip.refused, trip.ended = True, self._clock.now
            return
        self._queue.append((trip, self._clock.now))
        self._waiting_tokens += trip.prompt_tokens
        self._start()

    def values(self) -> Mapping[Series, float]:
        """See ``Pool``."""
        return {
            **self._waits.values(),
            **self._spent.values(),
            **self._answers.values(self.pods.ready, self._room),
            Series(Metric.INPUT_TOKENS): self._counted,
            Series(Metric.RUNNING): len(self._turns) + len(self._answers),
            Series(Metric.WAITING): len(self._queue),
            Series(Metric.BACKLOG_TOKENS): self._waiting_tokens,
        }

    def _start(self) -> None:
        while self._queue and len(self._turns) < self.pods.ready and self._has_room():
            trip, joined = self._queue.popleft()
            self._waiting_tokens -= trip.prompt_tokens
            self._waits.over(self._clock.now - joined)
            self._spent.change(1)
            encode, prefill = self._costs.encode(trip), self._costs.prefill(trip)
            turns = 2 if encode else 1
            self._turns[trip] = (encode + prefill) / turns
            seconds = encode + prefill + turns * self._step()
            self._clock.at(self._clock.now + seconds, lambda trip=trip: self._first(trip))  # type: ignore[misc] # bound
        self._answers.repace()

    def _has_room(self) -> bool:
        ahead = len(self._turns)
        return fits(self._queue[0][0], self._answers, ahead, self.pods.ready, self._room)

    def _first(self, trip: Trip) -> None:
        del self._turns[trip]
        self._spent.change(-1)
        self._counted += trip.prompt_tokens
        trip.first = self._clock.now
        self._answers.add(trip)
        self._start()

    def _ended(self, trip: Trip) -> None:
        self._done(trip)
        self._start()

    def _step(self) -> float:
        """One step of a pod's answers; nothing without any."""
        pods = max(1, self.pods.ready)
        answers = len(self._answers)
        return self._costs.decode_step(answers / pods) if answers else 0.0

    def _pace(self) -> float:
        step = self._step()
        if not step:
            return 0.0
        working = min(1.0, len(self._turns) / max(1, self.pods.ready))
        turn = sum(self._turns.values()) / len(self._turns) if self._turns else 0.0
        return (1 - working) / step + working / (turn + step)
