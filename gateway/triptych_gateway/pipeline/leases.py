"""Handles that a request holds, given back if nobody fetched what they lead to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from triptych_contract.v1.common_pb2 import Handle

from triptych_gateway.tiers.calls import PodCalls

_MOST_RELEASES: Final = 256


class Releases:
    """Gives leases back behind the scenes: a request's end does not wait for it."""

    def __init__(self, calls: PodCalls) -> None:
        self._calls = calls
        self._tasks: set[asyncio.Task[None]] = set()

    def release(self, handles: Iterable[Handle]) -> None:
        """Begins to give ``handles`` back. With too many under way they are left to expire."""
        unused = list(handles)
        if not unused or len(self._tasks) >= _MOST_RELEASES:
            return
        task = asyncio.create_task(self._calls.release(unused))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Waits for what is under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[Holdings]:
        """Collects handles; what is still held at the end is given back, however it ends."""
        holdings = Holdings()
        try:
            yield holdings
        finally:
            self.release(holdings.handles)


class Holdings:
    """The handles of one attempt that nobody has fetched yet."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []

    def add(self, handle: Handle) -> Handle:
        """Takes responsibility for ``handle``."""
        self.handles.append(handle)
        return handle

    def used(self) -> None:
        """Everything so far has been fetched, and with it released."""
        self.handles.clear()
