import asyncio

import pytest
from cluster.waiting import eventually
from triptych_gateway.pipeline.single_flight import SingleFlight
from triptych_gateway.pipeline.turns import Turns


class Work:
    def __init__(self, error: Exception | None = None) -> None:
        self.begun = 0
        self.cancelled = 0
        self.finish = asyncio.Event()
        self.error = error

    async def __call__(self) -> int:
        self.begun += 1
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error:
            raise self.error
        return self.begun


async def test_work_that_several_want_is_done_once():
    flights, work = SingleFlight[str, int](), Work()
    tasks = [asyncio.create_task(flights.run("k", work)) for _ in range(3)]
    await asyncio.sleep(0)
    work.finish.set()
    assert await asyncio.gather(*tasks) == [1, 1, 1]
    assert await flights.run("k", work) == 2


async def test_who_leaves_does_not_take_the_work_from_the_others():
    flights, work = SingleFlight[str, int](), Work()
    first, second = (asyncio.create_task(flights.run("k", work)) for _ in range(2))
    await eventually(lambda: work.begun, "the work's begin", seconds=60)
    first.cancel()
    await asyncio.sleep(0.01)
    work.finish.set()
    assert await second == 1
    assert work.cancelled == 0


async def test_work_that_nobody_wants_any_more_is_cancelled():
    flights, work = SingleFlight[str, int](), Work()
    tasks = [asyncio.create_task(flights.run("k", work)) for _ in range(2)]
    await eventually(lambda: work.begun, "the work's begin", seconds=60)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await eventually(lambda: work.cancelled, "the work's end", seconds=60)
    assert (work.begun, work.cancelled) == (1, 1)
    work.finish.set()
    assert await flights.run("k", work) == 2


async def test_an_error_reaches_everybody_and_is_not_kept():
    flights, work = SingleFlight[str, int](), Work(ValueError("no"))
    tasks = [asyncio.create_task(flights.run("k", work)) for _ in range(2)]
    await asyncio.sleep(0)
    work.finish.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(error) for error in found] == ["no", "no"]
    with pytest.raises(ValueError, match="no"):
        await flights.run("k", work)
    assert work.begun == 2


async def test_turns_are_taken_by_key_and_say_whether_somebody_was_before():
    turns, order = Turns[str](), []

    async def use(key: str, name: str) -> None:
        async with turns.of(key) as waited:
            order.append((name, waited))
            await asyncio.sleep(0.01)

    await asyncio.gather(use("k", "a"), use("k", "b"), use("other", "c"))
    assert order == [("a", False), ("c", False), ("b", True)]
