"""Nothing is lost, nothing is done twice at a time, and failures come back later and later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_operator.controller.queue import KeyedQueue

Found = TypeVar("Found")
PATIENCE = 60.0


def queue(first: float = 0.05, last: float = 1.0) -> KeyedQueue[str]:
    return KeyedQueue(first_retry=first, last_retry=last)


async def soon(work: Awaitable[Found]) -> Found:
    async with asyncio.timeout(PATIENCE):
        return await work


async def nothing_comes(due: KeyedQueue[str], seconds: float = 0.05) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await due.get()
    except TimeoutError:
        return True
    return False


async def test_keys_come_out_in_the_order_in_which_they_went_in() -> None:
    due = queue()
    for key in "abc":
        due.add(key)
    assert len(due) == 3
    assert [await soon(due.get()) for _ in range(3)] == ["a", "b", "c"]
    assert len(due) == 0


async def test_a_key_that_is_due_already_is_due_once() -> None:
    due = queue()
    for _ in range(5):
        due.add("a")
    assert await soon(due.get()) == "a"
    due.done("a")
    assert await nothing_comes(due)


async def test_whoever_waits_gets_the_next_key() -> None:
    due = queue()
    waiting = asyncio.create_task(due.get())
    await asyncio.sleep(0)
    due.add("a")
    assert await soon(waiting) == "a"


async def test_what_happens_during_the_work_makes_the_key_due_once_more() -> None:
    due = queue()
    due.add("a")
    assert await soon(due.get()) == "a"
    due.add("a")
    due.add("a")
    assert await nothing_comes(due), "one worker at a time"
    due.done("a")
    assert await soon(due.get()) == "a"
    due.done("a")
    assert await nothing_comes(due)


async def test_what_happens_during_work_that_fails_does_not_wait_for_the_retry() -> None:
    due = queue(first=60)
    due.add("a")
    await soon(due.get())
    due.add("a")
    due.failed("a")
    assert await soon(due.get()) == "a"


async def test_failures_come_back_later_and_later_up_to_a_bound() -> None:
    due = queue(first=0.01, last=0.1)
    due.add("a")
    delays = []
    for _ in range(6):
        await soon(due.get())
        delays.append(due.failed("a"))
    assert delays == [0.01, 0.02, 0.04, 0.08, 0.1, 0.1]
    due.close()


async def test_failures_of_one_moment_do_not_put_the_retry_off() -> None:
    """Events come by the dozen while the server refuses everything for a second."""
    due = queue(first=1, last=60)
    for _ in range(12):
        due.add("a")
        await soon(due.get())
        assert due.failed("a") == 1
    due.close()


async def test_success_forgets_earlier_failures() -> None:
    due = queue(first=1, last=10)
    for _ in range(3):
        due.add("a")
        await soon(due.get())
        due.failed("a")
    due.add("a")
    await soon(due.get())
    due.done("a")
    due.add("a")
    await soon(due.get())
    assert due.failed("a") == 1
    due.close()


async def test_one_key_that_fails_delays_no_other() -> None:
    due = queue()
    for key in "ab":
        due.add(key)
    await soon(due.get())
    assert due.failed("a") == 0.05
    due.add("a")
    assert await soon(due.get()) == "b"
    await soon(due.get())
    assert due.failed("a") == 0.05
    assert due.failed("b") == 0.05
    due.close()


async def test_a_server_that_asks_for_more_time_gets_it() -> None:
    due = queue(first=1, last=10)
    due.add("a")
    await soon(due.get())
    assert due.failed("a", at_least=30) == 30
    due.close()


async def test_a_failure_comes_back_by_itself() -> None:
    due = queue(first=0.05)
    due.add("a")
    await soon(due.get())
    began = asyncio.get_running_loop().time()
    due.failed("a")
    assert await soon(due.get()) == "a"
    assert asyncio.get_running_loop().time() - began >= 0.04


async def test_many_failures_do_not_overflow() -> None:
    due = queue(first=0.5, last=60)
    for _ in range(2000):
        due.add("a")
        await soon(due.get())
        assert due.failed("a") <= 60
    due.close()


async def test_the_earliest_timer_wins() -> None:
    due = queue()
    due.add_later("a", 60)
    due.add_later("a", 0.02)
    due.add_later("a", 60)
    assert await soon(due.get()) == "a"
    due.done("a")
    assert await nothing_comes(due)


async def test_a_key_that_is_taken_before_its_timer_rings_is_not_due_again() -> None:
    due = queue()
    due.add_later("a", 0.05)
    due.add("a")
    assert await soon(due.get()) == "a"
    due.done("a")
    assert await nothing_comes(due, 0.2)


async def test_a_closed_queue_rings_no_more() -> None:
    due = queue()
    due.add_later("a", 0.02)
    due.close()
    assert await nothing_comes(due, 0.1)


async def test_a_worker_that_is_cancelled_while_it_waits_loses_nothing() -> None:
    due = queue()
    waiting = asyncio.create_task(due.get())
    await asyncio.sleep(0)
    waiting.cancel()
    due.add("a")
    assert await soon(due.get()) == "a"


EVENTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=30)


# How many draws it takes depends on time, so they come from a seed and not from hypothesis.
@given(EVENTS, st.integers(1, 4), st.integers(0, 2**32 - 1).map(random.Random))
def test_after_every_event_there_is_a_look_and_never_two_at_once(
    events: list[tuple[str, int]], workers: int, chance: random.Random
) -> None:
    asyncio.run(_play(events, workers, chance))


async def _play(events: list[tuple[str, int]], workers: int, chance: random.Random) -> None:
    """Workers that look at the newest event of a key and sometimes fail, while events come."""
    due = queue(first=0.0005, last=0.001)
    happened, seen, busy = dict.fromkeys("abc", 0), dict.fromkeys("abc", 0), set[str]()

    async def work() -> None:
        while True:
            key = await due.get()
            assert key not in busy
            busy.add(key)
            saw = happened[key]
            await asyncio.sleep(0)
            busy.remove(key)
            if chance.random() < 0.3:
                due.failed(key)
            else:
                seen[key] = saw
                due.done(key)

    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    for key, pauses in events:
        happened[key] += 1
        due.add(key)
        for _ in range(pauses):
            await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        while seen != happened:
            assert not any(task.done() for task in tasks)
            await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    due.close()


@pytest.mark.parametrize("count", [1, 10])
async def test_a_key_is_forgotten_once_it_is_done(count: int) -> None:
    """What the queue remembers is bounded by the keys that are due, worked on or failing."""
    due = queue()
    for number in range(count):
        due.add(str(number))
        due.done(await soon(due.get()))
    assert (len(due), await nothing_comes(due)) == (0, True)
