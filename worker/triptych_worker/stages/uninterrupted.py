"""Work in another thread that is always over when its caller goes on, even when cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def uninterrupted(work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
    """Runs ``work`` in a thread. A cancelled caller still waits for its end, since the memory that
    it reads or writes is given to others afterwards; ``undo`` then gets a result nobody takes.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if undo is not None and not task.cancelled() and task.exception() is None:
            undo(task.result())
        raise
