import asyncio
import os
import signal

import pytest
from triptych_operator.cli.stopping import StopSignals


async def test_work_that_nothing_stops_gives_its_result() -> None:
    assert await StopSignals().unless_stopped(asyncio.sleep(0, "done")) == "done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_work(number: signal.Signals) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)
        finally:
            ended.set()

    assert await StopSignals().unless_stopped(work()) is None
    assert ended.is_set()


async def test_an_error_of_the_work_comes_through() -> None:
    async def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await StopSignals().unless_stopped(work())


async def test_a_signal_that_was_answered_does_not_end_the_next_work() -> None:
    stop = StopSignals()
    os.kill(os.getpid(), signal.SIGINT)
    assert await stop.unless_stopped(asyncio.sleep(60)) is None
    stop.forget()
    assert await stop.unless_stopped(asyncio.sleep(0, "done")) == "done"
