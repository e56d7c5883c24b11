"""The operator as this process: logs to stderr, ends on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from typing import Final

from triptych_operator.controller.run import run
from triptych_operator.controller.settings import OperatorSettings

_NEW_OBJECTS: Final = 4_000  # from one collection of garbage to the next


def operate(settings: OperatorSettings, *, verbose: bool) -> None:
    """Operates until it is told to end.

    Raises:
        InvalidRequest: there is no cluster to connect to.
        Unavailable: it lost the election, or the watches ended; start it again.
    """
    _log(verbose=verbose)
    # What is imported stays: collections need not look at it. They look at what is new less often
    # than by default, as most of that, calls and events on their way, is gone by itself soon after.
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    asyncio.run(_until_signalled(settings))


async def _until_signalled(settings: OperatorSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def take_signals() -> None:
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, stop.set)

    take_signals()
    await run(settings, stop, take_signals)


def _log(*, verbose: bool) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    if not verbose:
        logging.getLogger("kopf").setLevel(logging.WARNING)
