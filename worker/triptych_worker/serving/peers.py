"""Deadlines on what a peer may keep us waiting for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from triptych_contract.errors import DeadlineExceeded


@asynccontextmanager
async def deadline(seconds: float, what: str) -> AsyncIterator[None]:
    """Ends what is inside after ``seconds``.

    Raises:
        DeadlineExceeded: saying that ``what`` took too long.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise DeadlineExceeded(f"{what} took longer than {seconds:g} s") from error
