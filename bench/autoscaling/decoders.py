"""Decoders that are simulated: a pod writes all answers that it holds, a token of each a step."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from triptych_contract.names import Metric, Stage
from triptych_operator.signals.page import Series

from bench.autoscaling.pools import Clock, Done, Pods, Waits
from bench.autoscaling.trips import Costs, Trip


@dataclass(frozen=True, slots=True)
class Room:
    """What one pod holds at most."""

    running: int
    kv_tokens: int


@dataclass(slots=True)
class Answers:
    """Answers that are written, all at the same pace: a token of each takes one step.

    How many tokens each has got since time began is one number, so that a change of the pace costs
    nothing per answer.
    """

    clock: Clock
    pace: Callable[[], float]  # tokens per second of each answer, now
    done: Done
    kv_tokens: int = 0
    tokens: float = 0.0  # that an answer would have which has been there since time began
    written: float = 0.0  # of all answers
    seconds: float = 0.0  # between tokens, of all answers
    _rate: float = 0.0
    _since: float = 0.0
    _version: int = 0
    _ends: list[tuple[float, int, Trip]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, trip: Trip) -> None:
        """One more, whose first token is there."""
        self.advance()
        end = self.tokens + trip.output_tokens - 1
        heapq.heappush(self._ends, (end, next(self._numbers), trip))
        self.kv_tokens += _kv(trip)

    def advance(self) -> None:
        """Writes down what has been written at the pace that was."""
        elapsed = self.clock.now - self._since
        self.tokens += elapsed * self._rate
        self.written += elapsed * self._rate * len(self._ends)
        self.seconds += elapsed * len(self._ends)
        self._since = self.clock.now

    def repace(self) -> None:
        """Goes on at the pace of now."""
        self.advance()
        self._rate = self.pace()
        self._version += 1
        if self._ends and self._rate > 0:
            version, left = self._version, max(0.0, self._ends[0][0] - self.tokens)
            self.clock.at(self.clock.now + left / self._rate, lambda: self._end(version))

    def _end(self, version: int) -> None:
        if version != self._version:
            return  # the pace has changed since
        self.advance()
        _, _, trip = heapq.heappop(self._ends)
        self.kv_tokens -= _kv(trip)
        self.done(trip)
        self.repace()

    def values(self, pods: int, room: Room) -> dict[Series, float]:
        """As workers expose them."""
        self.advance()
        return {
            Series(f"{Metric.TPOT_SECONDS}_sum"): self.seconds,
            Series(f"{Metric.TPOT_SECONDS}_count"): self.written,
            Series(Metric.KV_TOKENS_USED): self.kv_tokens,
            Series(Metric.KV_TOKENS_CAPACITY): pods * room.kv_tokens,
        }


class Decoders:
    """Decode: takes an answer as soon as a pod has room for all that it may become."""

    def __init__(self, clock: Clock, pods: Pods, costs: Costs, room: Room, done: Done) -> None:
        self.pods = pods
        self._clock = clock
        self._costs = costs
        self._room = room
        self._done = done
        self._waits = Waits(Stage.DECODE_QUEUE)
        self._queue: deque[tuple[Trip, float]] = deque()
        self._answers = Answers(clock, self._pace, self._ended)
        pods.changed = self._admit

    @property
    def inside(self) -> int:
        """See ``Pool``."""
        return len(self._queue) + len(self._answers)

    def join(self, trip: Trip) -> None:
        """See ``Pool``."""
        self._queue.append((trip, self._clock.now))
        self._admit()

    def values(self) -> Mapping[Series, float]:
        """See ``Pool``."""
        return {
            **self._waits.values(),
            **self._answers.values(self.pods.ready, self._room),
            Series(Metric.RUNNING): len(self._answers),
            Series(Metric.WAITING): len(self._queue),
            Series(Metric.BACKLOG_TOKENS): len(self._queue),
        }

    def _admit(self) -> None:
        while self._queue and fits(
            self._queue[0][0], self._answers, 0, self.pods.ready, self._room
        ):
            trip, joined = self._queue.popleft()
            self._waits.over(self._clock.now - joined)
            self._answers.add(trip)
        self._answers.repace()

    def _ended(self, trip: Trip) -> None:
        self._done(trip)
        self._admit()

    def _pace(self) -> float:
        pods = max(1, self.pods.ready)
        return 1 / self._costs.decode_step(len(self._answers) / pods)


def fits(trip: Trip, answers: Answers, ahead: int, pods: int, room: Room) -> bool:
    """Whether a request may hold KV memory beside what does; ``ahead`` others are on their way."""
    running = len(answers) + ahead
    return running < room.running * pods and answers.kv_tokens + _kv(trip) <= room.kv_tokens * pods


def _kv(trip: Trip) -> int:
    return trip.prompt_tokens + trip.output_tokens - 1
