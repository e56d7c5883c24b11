"""Waits of tests: each has a deadline, and says what did not come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

Found = TypeVar("Found")

POLL_SECONDS = 0.05


@overload
async def eventually(
    look: Callable[[], Awaitable[Found]],
    what: str,
    *,
    seconds: float,
    of: asyncio.Task[Any] | None = None,
) -> Found: ...
@overload
async def eventually(
    look: Callable[[], Found], what: str, *, seconds: float, of: asyncio.Task[Any] | None = None
) -> Found: ...
async def eventually(
    look: Callable[[], Found | Awaitable[Found]],
    what: str,
    *,
    seconds: float,
    of: asyncio.Task[Any] | None = None,
) -> Found:
    """Looks again and again, and gives the first answer that is true.

    ``of`` is the task that is to bring ``what`` about: when it has ended, nothing more will come.

    Raises:
        TimeoutError: ``what`` did not come within ``seconds``; says what was seen last.
        RuntimeError: ``of`` has ended before; its own error, if it had one, is the cause.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = look()
        found = await answer if isinstance(answer, Awaitable) else answer
        if found:
            return found
        if of is not None and of.done():
            error = None if of.cancelled() else of.exception()
            raise RuntimeError(f"not any more: {what}; ended: {of}") from error
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}; last seen: {found!r}")
        await asyncio.sleep(POLL_SECONDS)
