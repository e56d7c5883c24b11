"""A queue of keys: each at most once, at one worker at a time, again after a delay when it failed.

The keyed work queue that Kubernetes' own controllers use: whatever happens to a resource while
it is worked on makes it due once more, so nothing is missed and nothing is done twice at a time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class KeyedQueue(Generic[Key]):
    """Keys that are due. Bounded by the number of keys that exist, as each is there once."""

    def __init__(self, *, first_retry: float, last_retry: float) -> None:
        """Retries begin ``first_retry`` seconds after a failure and double up to ``last_retry``."""
        self._first, self._last = first_retry, last_retry
        self._due: OrderedDict[Key, None] = OrderedDict()
        self._working: set[Key] = set()
        self._again: set[Key] = set()  # came while they were worked on
        self._failures: dict[Key, int] = {}
        self._early: set[Key] = set()  # are worked on before their retry was due
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._ready = asyncio.Semaphore(0)

    def __len__(self) -> int:
        """How many keys are due now."""
        return len(self._due)

    def add(self, key: Key) -> None:
        """Makes ``key`` due now."""
        if key in self._working:
            self._again.add(key)
        elif key not in self._due:
            self._due[key] = None
            self._ready.release()

    def add_later(self, key: Key, seconds: float) -> None:
        """Makes ``key`` due in ``seconds``, or earlier if it is already due earlier."""
        loop = asyncio.get_running_loop()
        standing = self._timers.get(key)
        if standing is not None and standing.when() <= loop.time() + seconds:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_later(seconds, self._ring, key)

    async def get(self) -> Key:
        """The next key, which is then being worked on until ``done`` or ``failed``."""
        await self._ready.acquire()
        key, _ = self._due.popitem(last=False)
        self._working.add(key)
        if key in self._timers:
            self._early.add(key)
        self._cancel_timer(key)
        return key

    def done(self, key: Key) -> None:
        """The work on ``key`` went well."""
        self._failures.pop(key, None)
        self._early.discard(key)
        self._release(key)

    def failed(self, key: Key, *, at_least: float = 0.0) -> float:
        """The work on ``key`` failed; in how many seconds it is due again if nothing happens.

        Only a retry that fails makes the next pause longer. What came early, since something had
        happened, may have failed many times within a moment, and that moment may be over.
        """
        count = self._failures.get(key, 0)
        if key in self._early and count:
            self._early.discard(key)
            count -= 1
        self._failures[key] = count + 1
        delay = max(at_least, min(self._last, self._first * 2.0 ** min(count, 32)))
        self._release(key)
        self.add_later(key, delay)
        return delay

    def close(self) -> None:
        """Forgets everything that is due later."""
        for key in list(self._timers):
            self._cancel_timer(key)

    def _release(self, key: Key) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _ring(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: Key) -> None:
        timer: asyncio.TimerHandle | None = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
