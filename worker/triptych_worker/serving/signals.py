"""SIGTERM and SIGINT: the first asks to drain, the second to leave at once."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Final

_ABRUPT_EXIT: Final = 1


class StopSignal:
    """Set by the first signal. The second ends the process without cleaning up."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def install(self) -> None:
        """Takes the signals over from now on; needs the running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    async def wait(self) -> None:
        """Returns once a stop was asked for."""
        await self._event.wait()

    def _received(self) -> None:
        if self._event.is_set():
            os._exit(_ABRUPT_EXIT)
        self._event.set()
