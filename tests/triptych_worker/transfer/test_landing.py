from __future__ import annotations

import asyncio

import pytest
from triptych_contract.errors import TooLarge
from triptych_worker.transfer.arena import Arena
from triptych_worker.transfer.landing import Landing

pytestmark = pytest.mark.torch

KIB = 1024


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_room_is_given_at_once_while_there_is_some() -> None:
    landing = Landing(Arena(2 * KIB))
    assert [await landing.reserve(KIB), await landing.reserve(KIB)] == [0, KIB]


async def test_who_asked_first_gets_room_first() -> None:
    landing = Landing(Arena(2 * KIB))
    whole = await landing.reserve(2 * KIB)
    large = asyncio.create_task(landing.reserve(2 * KIB))
    await settled()
    small = asyncio.create_task(landing.reserve(KIB))
    await settled()
    landing.free(whole)
    await settled()
    assert (large.done(), small.done()) == (True, False)
    landing.free(large.result())
    assert await small == 0


async def test_a_large_one_is_not_starved_by_small_ones() -> None:
    landing = Landing(Arena(2 * KIB))
    held = await landing.reserve(KIB)
    large = asyncio.create_task(landing.reserve(2 * KIB))
    await settled()
    small = asyncio.create_task(landing.reserve(KIB))
    await settled()
    assert not small.done()
    landing.free(held)
    assert await large == 0
    landing.free(0)
    assert await small == 0


async def test_giving_up_lets_those_behind_go_on() -> None:
    landing = Landing(Arena(2 * KIB))
    held = await landing.reserve(KIB)
    large = asyncio.create_task(landing.reserve(2 * KIB))
    await settled()
    small = asyncio.create_task(landing.reserve(KIB))
    await settled()
    large.cancel()
    assert await small == KIB
    landing.free(held)
    landing.free(KIB)
    assert landing.arena.used_bytes == 0


async def test_giving_up_when_room_has_just_come_gives_it_back() -> None:
    landing = Landing(Arena(KIB))
    held = await landing.reserve(KIB)
    waiting = asyncio.create_task(landing.reserve(KIB))
    await settled()
    landing.free(held)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert landing.arena.used_bytes == 0


async def test_what_never_fits_is_refused() -> None:
    with pytest.raises(TooLarge, match="landing_bytes"):
        await Landing(Arena(KIB)).reserve(KIB + 1)
