"""Stopping work when the client that wants it has left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


async def until_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Runs ``work`` to its end, or cancels it when the client disconnects; whether it ended.

    The request's body must have been read: everything that follows is the disconnect.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        await working
        return True
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
