"""SIGINT and SIGTERM as something that a coroutine can be ended by."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")


class StopSignals:
    """Takes over SIGINT and SIGTERM of the running event loop."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._asked.set)

    def forget(self) -> None:
        """Only signals from here on count."""
        self._asked.clear()

    async def unless_stopped(self, work: Coroutine[object, object, Result]) -> Result | None:
        """What ``work`` returns or raises; None when a signal came first, ``work`` cancelled."""
        working = asyncio.create_task(work)
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait((working, asked), return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            for task in (working, asked):
                task.cancel()
            await asyncio.gather(working, asked, return_exceptions=True)
