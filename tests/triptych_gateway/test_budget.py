import asyncio

import pytest
from triptych_contract.errors import Overloaded, TooLarge
from triptych_gateway.media.budget import ByteBudget


async def test_who_asks_waits_until_bytes_are_free():
    budget = ByteBudget(10)
    order = []

    async def use(name: str, amount: int) -> None:
        async with budget.hold(amount):
            order.append(name)
            await asyncio.sleep(0.01)

    await asyncio.gather(use("a", 8), use("b", 8), use("c", 2))
    assert order == ["a", "b", "c"]
    assert budget.used == 0


async def test_more_than_the_whole_is_refused():
    with pytest.raises(TooLarge):
        async with ByteBudget(10).hold(11):
            pass


async def test_who_gives_up_waiting_lets_the_next_in():
    budget = ByteBudget(10)
    async with budget.hold(8):
        waiting = asyncio.create_task(_hold(budget, 9))
        following = asyncio.create_task(_hold(budget, 2))
        await asyncio.sleep(0)
        waiting.cancel()
        await following
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.used == 0


async def test_growing_does_not_wait():
    budget = ByteBudget(10)
    budget.grow(8)
    with pytest.raises(Overloaded):
        budget.grow(3)
    budget.give_back(8)
    assert budget.used == 0


async def _hold(budget: ByteBudget, amount: int) -> None:
    async with budget.hold(amount):
        pass
