"""What the encode stage has admitted: who waits for which key, and what goes into the next batch.

Pure: no clock, no tensors, no event loop. One key is encoded once, however many wait for it; a
flight is that one encode, from its admission until its waiters have an answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar

from triptych_contract.errors import Overloaded, TooLarge

Item = TypeVar("Item")
Waiter = TypeVar("Waiter")

_UNMEASURED_RETRY = 1.0  # seconds, until something has been encoded
_LONGEST_RETRY = 60.0  # seconds
_NEWEST_SHARE = 0.3  # of the latest batch in the measured throughput


@dataclass(slots=True, eq=False)
class Flight(Generic[Item, Waiter]):
    """One encode under way. ``size_bytes`` is what its input takes."""

    key: bytes
    item: Item
    tokens: int
    size_bytes: int
    admitted: float
    started: float = inf
    waiters: list[Waiter] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of what is admitted; see ``config.EncodeLimits``."""

    batch_tokens: int
    queue_tokens: int
    inflight_bytes: int


class Throughput:
    """Tokens per second as lately measured."""

    def __init__(self) -> None:
        self.tokens_per_second = 0.0

    def measured(self, tokens: int, seconds: float) -> None:
        """Takes in one batch."""
        if seconds <= 0:
            return
        newest = tokens / seconds
        known = self.tokens_per_second
        self.tokens_per_second = newest if not known else known + _NEWEST_SHARE * (newest - known)

    def seconds_for(self, tokens: int) -> float:
        """How long ``tokens`` will take: when to come back after them."""
        if not self.tokens_per_second:
            return _UNMEASURED_RETRY
        return min(tokens / self.tokens_per_second, _LONGEST_RETRY)


class EncodeQueue(Generic[Item, Waiter]):
    """Flights in order of admission. Methods named by verbs mutate; properties only look."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.throughput = Throughput()
        self.waiting_tokens = 0
        self.inflight_bytes = 0
        self._flights: dict[bytes, Flight[Item, Waiter]] = {}
        self._waiting: deque[Flight[Item, Waiter]] = deque()

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def waiting(self) -> int:
        """Flights that have not started."""
        return len(self._waiting)

    def find(self, key: bytes) -> Flight[Item, Waiter] | None:
        """The flight of ``key``, waiting or started."""
        return self._flights.get(key)

    def admit(self, flight: Flight[Item, Waiter]) -> None:
        """Puts a flight at the end of the queue. An empty queue takes one of any length.

        Raises:
            Overloaded: the queue or the memory for inputs is full; says when to come back.
            TooLarge: its input alone exceeds the memory for inputs.
            ValueError: a flight of this key is under way.
        """
        if flight.key in self._flights:
            raise ValueError("this key is being encoded: join that flight")
        bounds = self.bounds
        if flight.size_bytes > bounds.inflight_bytes:
            raise TooLarge(
                f"the picture's tensors take {flight.size_bytes} bytes, this encoder's bound is "
                f"{bounds.inflight_bytes} (encode.inflight_bytes): send a smaller picture"
            )
        full = self._waiting and self.waiting_tokens + flight.tokens > bounds.queue_tokens
        if full or self.inflight_bytes + flight.size_bytes > bounds.inflight_bytes:
            raise Overloaded(
                f"{self.waiting_tokens} visual tokens wait here already: use another encoder or "
                "come back later",
                retry_after=self.throughput.seconds_for(self.waiting_tokens + flight.tokens),
            )
        self._flights[flight.key] = flight
        self._waiting.append(flight)
        self.waiting_tokens += flight.tokens
        self.inflight_bytes += flight.size_bytes

    def start_batch(self, now: float) -> list[Flight[Item, Waiter]]:
        """The longest head of the queue within the batch budget, at least one flight of any size.

        Strictly first come, first served, so nothing is overtaken for ever.
        """
        batch: list[Flight[Item, Waiter]] = []
        tokens = 0
        while self._waiting:
            tokens += self._waiting[0].tokens
            if batch and tokens > self.bounds.batch_tokens:
                break
            flight = self._waiting.popleft()
            flight.started = now
            self.waiting_tokens -= flight.tokens
            batch.append(flight)
        return batch

    def leave(self, flight: Flight[Item, Waiter], waiter: Waiter) -> None:
        """Takes a waiter off; a flight that nobody waits for any more and has not started ends."""
        if waiter in flight.waiters:
            flight.waiters.remove(waiter)
        if flight.waiters or flight.started < inf or self.find(flight.key) is not flight:
            return
        self._waiting.remove(flight)
        self.waiting_tokens -= flight.tokens
        self._forget(flight)

    def finish(self, flight: Flight[Item, Waiter]) -> None:
        """Ends a started flight.

        Raises:
            KeyError: it is not under way.
        """
        self._forget(flight)

    def clear(self) -> list[Flight[Item, Waiter]]:
        """Ends every flight, started or not; those that were under way."""
        flights = list(self._flights.values())
        for flight in flights:
            self._forget(flight)
        self._waiting.clear()
        self.waiting_tokens = 0
        return flights

    def check_integrity(self) -> None:
        """Counts again.

        Raises:
            RuntimeError: the books are wrong.
        """
        tokens = sum(flight.tokens for flight in self._waiting)
        size = sum(flight.size_bytes for flight in self._flights.values())
        if (tokens, size) != (self.waiting_tokens, self.inflight_bytes):
            raise RuntimeError(
                f"{tokens} tokens wait and {size} bytes are in flight; the books say "
                f"{self.waiting_tokens} and {self.inflight_bytes}"
            )

    def _forget(self, flight: Flight[Item, Waiter]) -> None:
        del self._flights[flight.key]
        self.inflight_bytes -= flight.size_bytes
