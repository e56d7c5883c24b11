"""Who may begin work: nobody while a worker starts or drains, and never without bound.

Knows no clock and no I/O; the event only tells a waiter that the last call has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from triptych_contract.errors import Overloaded, TooLarge, Unavailable


class State(Enum):
    """Mirrors ``triptych.v1.State``."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class Admission:
    """The state of a worker and how many calls of work it has under way."""

    def __init__(self) -> None:
        self._state = State.STARTING
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def state(self) -> State:
        """What the worker tells about itself."""
        return self._state

    @property
    def running(self) -> int:
        """Calls of work under way."""
        return self._running

    def open(self) -> None:
        """Takes work from now on, unless a drain has begun meanwhile."""
        if self._state is State.STARTING:
            self._state = State.SERVING

    def drain(self) -> None:
        """Takes no new work from now on, for good."""
        self._state = State.DRAINING

    @contextmanager
    def call(self) -> Iterator[None]:
        """Surrounds one call of work.

        Raises:
            Unavailable: the worker starts or drains.
        """
        if self._state is State.STARTING:
            raise Unavailable("starting; come back when its health is SERVING", retry_after=1.0)
        if self._state is State.DRAINING:
            raise Unavailable("draining; use another pod")
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def idle(self) -> None:
        """Returns when no call of work is under way."""
        await self._idle.wait()


class ByteBudget:
    """A bound in bytes on what many calls hold at a time."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._used = 0

    @property
    def used(self) -> int:
        """Bytes that are reserved now."""
        return self._used

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Holds ``size`` bytes of the bound.

        Raises:
            TooLarge: more than the bound itself.
            Overloaded: more than is free now.
        """
        if size > self.capacity:
            raise TooLarge(f"{size} bytes exceed this worker's bound of {self.capacity}")
        if self._used + size > self.capacity:
            raise Overloaded(
                f"{self._used} of {self.capacity} bytes are in flight; send again later",
                retry_after=0.5,
            )
        self._used += size
        try:
            yield
        finally:
            self._used -= size
