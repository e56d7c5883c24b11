import asyncio
import threading

import pytest
from triptych_worker.stages.uninterrupted import uninterrupted

SECONDS = 60.0  # for what takes none; on a machine that others use too


async def test_the_result_comes_back() -> None:
    assert await uninterrupted(lambda: 7) == 7


async def test_an_error_comes_back() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await uninterrupted(fail)


async def test_a_cancelled_caller_goes_on_only_when_the_work_is_over_and_undone() -> None:
    began, may_end = threading.Event(), threading.Event()
    undone: list[int] = []

    def work() -> int:
        began.set()
        assert may_end.wait(SECONDS)
        return 7

    task = asyncio.create_task(uninterrupted(work, undo=undone.append))
    assert await asyncio.to_thread(began.wait, SECONDS)
    task.cancel()
    await asyncio.sleep(0.02)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == [7]
