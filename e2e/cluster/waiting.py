"""Waits of tests: each has a deadline, and says what did not come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

Found = TypeVar("Found")

POLL_SECONDS = 0.05


@overload
async def eventually(
    look: Callable[[], Awaitable[Found]], what: str, *, seconds: float
) -> Found: ...
@overload
async def eventually(look: Callable[[], Found], what: str, *, seconds: float) -> Found: ...
async def eventually(
    look: Callable[[], Found | Awaitable[Found]], what: str, *, seconds: float
) -> Found:
    """Looks again and again, and gives the first answer that is true.

    Raises:
        TimeoutError: ``what`` did not come within ``seconds``; says what was seen last.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = look()
        found = await answer if isinstance(answer, Awaitable) else answer
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}; last seen: {found!r}")
        await asyncio.sleep(POLL_SECONDS)
