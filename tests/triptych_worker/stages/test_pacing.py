"""How far apart steps of answers are where other processes have the cores, and what does not wait.

Where nothing may wait the pace is an hour: who waits for it is found by the timeout of a test.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from language_stages import Stages, language_stages, text
from triptych_contract.errors import Unavailable
from triptych_contract.names import Stage
from triptych_worker.cores import Cores
from triptych_worker.domain import DecodeInput, Sampling
from triptych_worker.free_cores import FreeCores

pytestmark = [pytest.mark.torch, pytest.mark.timeout(60)]

T = TypeVar("T")
HOUR = 3600.0


class TimedCores(Cores):
    """Notes when steps were given to it."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.times: list[float] = []

    def submit(self, work: Callable[[bool], T], threads: int = 0) -> Future[T]:
        self.times.append(time.perf_counter())
        return super().submit(work, threads)


@asynccontextmanager
async def paced(
    folder: Path, seconds: float, threads: int = 2
) -> AsyncIterator[tuple[Stages, TimedCores]]:
    cores = TimedCores(threads)
    async with language_stages(folder, make_cores=lambda: cores, pace_seconds=seconds) as stages:
        yield stages, cores


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have all cores but one."""
    monkeypatch.setattr(FreeCores, "count", lambda _: 1)


@pytest.mark.parametrize("threads", [1, 2])
async def test_nothing_rests_where_cores_are_free(
    folder: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(FreeCores, "count", lambda _: 2)
    async with paced(folder, HOUR, threads) as (stages, _):
        assert len(await stages.generate(text(20, max_tokens=5, ignore_eos=True))) == 5


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("threads", [1, 2])
async def test_steps_of_answers_begin_apart_where_others_have_the_cores(
    folder: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    async with paced(folder, 0.05, threads) as (stages, cores):
        await stages.generate(text(20, max_tokens=5, ignore_eos=True))
    assert len(cores.times) == 5, "a prompt and four tokens"
    # A step begins after it was given to the cores, and the next is given to them after the rest.
    apart = [after - before for before, after in zip(cores.times, cores.times[1:], strict=False)]
    assert min(apart) >= 0.05


@pytest.mark.usefixtures("taken")
async def test_nothing_rests_where_there_is_but_one_core(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    async with paced(folder, HOUR, threads=1) as (stages, _):
        assert len(await stages.generate(text(20, max_tokens=5, ignore_eos=True))) == 5


async def test_what_was_used_while_there_was_nothing_to_do_is_forgotten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    def count(free: FreeCores) -> int:
        happened.append("count")
        return 1

    monkeypatch.setattr(FreeCores, "forget", lambda _: happened.append("forget"))
    monkeypatch.setattr(FreeCores, "count", count)
    async with paced(folder, 0.001) as (stages, _):
        await stages.generate(text(20, max_tokens=4, ignore_eos=True))
        counts = [place for place, what in enumerate(happened) if what == "count"]
        assert counts, "of three tokens"
        assert "forget" not in happened[counts[0] : counts[-1]], "a rest is not for want of work"
        happened.clear()
        while "forget" not in happened:  # what comes at once finds the engine awake still
            await asyncio.sleep(0.001)
            await stages.generate(text(20, max_tokens=1))


@pytest.mark.usefixtures("taken")
async def test_a_rest_ends_at_once_when_the_engine_stops(folder: Path) -> None:
    async with paced(folder, HOUR) as (stages, _):
        events = stages.fused.generate(text(20, max_tokens=5, ignore_eos=True))
        await anext(events)
        stages.engine.stop()
        with pytest.raises(Unavailable, match="has stopped"):
            await anext(events)


@pytest.mark.usefixtures("taken")
async def test_a_prompt_is_not_held_up_and_who_rests_joins_its_step(folder: Path) -> None:
    async with paced(folder, HOUR) as (stages, cores):
        rests = stages.fused.generate(text(20, max_tokens=5, ignore_eos=True))
        await anext(rests)
        await stages.generate(text(12, max_tokens=1))
        await anext(rests)
        assert len(cores.times) == 2, "the prompts, the second with a token of the answer"
        await rests.aclose()


@pytest.mark.usefixtures("taken")
async def test_neither_who_comes_nor_who_leaves_ends_a_rest(folder: Path) -> None:
    sampling = Sampling(max_tokens=5, ignore_eos=True)
    async with paced(folder, HOUR) as (stages, cores):
        prefilled = await stages.prefill.prefill(text(20, max_tokens=5, ignore_eos=True))
        assert prefilled.kv is not None
        rests = stages.fused.generate(text(16, max_tokens=5, ignore_eos=True))
        leaves = stages.fused.generate(text(14, max_tokens=5, ignore_eos=True))
        comes = stages.decode.decode(DecodeInput("test", prefilled.kv, prefilled.state, sampling))
        async with aclosing(rests), aclosing(comes):
            await anext(rests)
            await anext(leaves)  # of its prompt's step, which gave the other one a token
            await anext(rests)
            coming = asyncio.ensure_future(anext(comes))
            while Stage.KV_TRANSFER not in dict(stages.observed.durations):  # noqa: ASYNC110 - the stage tells nobody
                await asyncio.sleep(0.001)
            await leaves.aclose()
            assert stages.engine.load().running == 2, "its range is free at once"
            await stages.generate(text(12, max_tokens=1))
            await anext(rests)
            await coming
            assert len(cores.times) == 4, "four prompts; the last took both answers along"
