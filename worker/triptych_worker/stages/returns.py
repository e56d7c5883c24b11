"""Giving leases back without waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from triptych_worker.domain import Handle, TensorSource


class LeaseReturns:
    """Returns leases that nobody will read, so that their memory is free before they expire."""

    def __init__(self, source: TensorSource) -> None:
        self._source = source
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    def give_back(self, handles: Sequence[Handle]) -> None:
        """Starts it; failures are logged by the source, and the leases then expire."""
        if handles:
            task = asyncio.create_task(self._source.release(handles))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
