"""Prefill, decode and fused as their callers see them: events, times, limits, freeing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from language_stages import KV_FINGERPRINT, ids, language_stages, text, until_running
from references import Case
from triptych_contract.errors import (
    PromptTooLong,
)
from triptych_contract.names import Count, Metric, Stage
from triptych_worker.cores import Cores
from triptych_worker.domain import (
    DecodeInput,
    FinishReason,
    Sampling,
)
from triptych_worker.language.model import LanguageModel

pytestmark = pytest.mark.torch

T = TypeVar("T")


async def test_the_first_event_tells_of_prefill_and_the_last_of_decode(
    folder: Path, picture_case: Case
) -> None:
    async with language_stages(folder) as stages:
        sampling = Sampling(max_tokens=5, ignore_eos=True)
        events = await stages.generate(picture_case.request(stages.publish, sampling))
        observed = stages.observed
    assert [event.times is None for event in events] == [False, True, True, True, False]
    first, last = events[0].times, events[-1].times
    assert first is not None
    assert last is not None
    assert set(first.seconds) == {Stage.EMBEDDING_TRANSFER, Stage.PREFILL_QUEUE, Stage.PREFILL}
    assert first.counts == {
        Count.PROMPT_TOKENS: len(picture_case.token_ids),
        Count.VISUAL_TOKENS: sum(len(picture.rows) for picture in picture_case.pictures),
        Count.EMBEDDING_CACHE_HITS: 0,
        Count.KV_PREFIX_TOKENS: 0,
    }
    assert set(last.seconds) == {Stage.DECODE}
    assert last.counts == {Count.OUTPUT_TOKENS: 5}
    assert len(observed.gaps) == 4
    assert {stage for stage, _ in observed.durations} == {*first.seconds, *last.seconds}
    assert observed.counters.pop(Metric.BUSY_SECONDS) > 0
    assert observed.counters == {
        Metric.INPUT_TOKENS: len(picture_case.token_ids),
        Metric.OUTPUT_TOKENS: 5,
    }


class NotedCores(Cores):
    """Notes how many threads are asked for, of three."""

    def __init__(self) -> None:
        super().__init__(3)
        self.asked: list[int] = []

    def submit(self, work: Callable[[bool], T], threads: int = 0) -> Future[T]:
        self.asked.append(threads)
        return super().submit(work, threads)


async def test_a_prompt_takes_all_threads_and_a_step_of_answers_those_that_are_free(
    folder: Path,
) -> None:
    cores = NotedCores()
    async with language_stages(folder, chunk_tokens=24, make_cores=lambda: cores) as stages:
        await stages.generate(text(40, max_tokens=4, ignore_eos=True))
        prompt, answers = cores.asked[:2], cores.asked[2:]
        assert prompt == [3, 3], "two chunks"
        assert len(answers) == 3
        assert all(1 <= threads <= 3 for threads in answers), "told, not left to all"


async def test_decode_tells_its_queue_and_the_transfer(folder: Path) -> None:
    async with language_stages(folder) as stages:
        events = await stages.generate_split(text(20, max_tokens=4, ignore_eos=True))
    last = events[-1].times
    assert last is not None
    assert set(last.seconds) == {Stage.DECODE_QUEUE, Stage.KV_TRANSFER, Stage.DECODE}
    assert last.counts == {Count.OUTPUT_TOKENS: 4}


async def test_a_wait_is_told_when_it_is_over_not_when_the_answer_is(folder: Path) -> None:
    async with language_stages(folder) as stages:
        prefilled = await stages.prefill.prefill(text(60, max_tokens=40, ignore_eos=True))
        assert prefilled.kv is not None
        sampling = Sampling(max_tokens=40, ignore_eos=True)
        rest = DecodeInput("test", prefilled.kv, prefilled.state, sampling)
        answer = stages.decode.decode(rest)
        await anext(answer)
        told = [stage for stage, _ in stages.observed.durations]
        await answer.aclose()
    assert told == [Stage.PREFILL_QUEUE, Stage.PREFILL, Stage.DECODE_QUEUE, Stage.KV_TRANSFER]
    assert stages.observed.counters[Metric.INPUT_TOKENS] == 60


async def test_a_second_round_takes_embeddings_from_the_cache_and_returns_the_leases(
    folder: Path, picture_case: Case
) -> None:
    async with language_stages(folder) as stages:
        cold = await stages.generate(picture_case.request(stages.publish, Sampling(max_tokens=12)))
        warm = await stages.generate(picture_case.request(stages.publish, Sampling(max_tokens=12)))
        await asyncio.sleep(0)
        stats = stages.embeddings.stats()
        assert not stages.tensors.held
        assert len(stages.tensors.borrowed) == len(stages.tensors.released) == 2
    assert ids(cold) == ids(warm) == list(picture_case.answered.token_ids)
    assert (stats.hits, stats.misses) == (2, 2)
    assert warm[0].times is not None
    assert warm[0].times.counts[Count.EMBEDDING_CACHE_HITS] == 2


async def test_embeddings_of_this_process_are_read_in_place_and_not_cached(
    folder: Path, picture_case: Case
) -> None:
    async with language_stages(folder) as stages:
        stages.tensors.instance = "worker"
        events = await stages.generate(
            picture_case.request(stages.publish, Sampling(max_tokens=12))
        )
        assert stages.embeddings.stats().bytes == 0
        assert not stages.tensors.held
    assert ids(events) == list(picture_case.answered.token_ids)


@pytest.mark.parametrize("sampling", [{"max_tokens": 1}, {"max_tokens": 9, "stop": True}])
async def test_an_answer_of_one_token_needs_no_keys_and_values(
    folder: Path, sampling: dict[str, object]
) -> None:
    async with language_stages(folder) as stages:
        first = (await stages.generate(text(20, max_tokens=1)))[0]
        stop = (first.text,) if sampling.get("stop") else ()
        prefilled = await stages.prefill.prefill(
            text(20, **{**sampling, "stop": stop})  # the first token's text stops it
        )
        assert not stages.tensors.held
    assert prefilled.kv is None
    assert prefilled.first.finish_reason is (FinishReason.STOP if stop else FinishReason.LENGTH)
    assert prefilled.first.times is not None
    assert prefilled.first.times.counts[Count.OUTPUT_TOKENS] == 1


async def test_an_answer_does_not_end_below_its_least_tokens(folder: Path) -> None:
    async with language_stages(folder) as stages:
        free = ids(await stages.generate(text(20, max_tokens=8, ignore_eos=True)))

    def end_early(model: LanguageModel) -> None:
        model.eos_ids = frozenset({free[0]})

    async with language_stages(folder, change=end_early) as stages:
        assert ids(await stages.generate(text(20, max_tokens=8))) == free[:1]
        longer = ids(await stages.generate(text(20, max_tokens=8, min_tokens=4)))
    assert len(longer) >= 4
    assert free[0] not in longer[:4]


async def test_the_context_ends_an_answer_by_length(folder: Path) -> None:
    def shorten(model: LanguageModel) -> None:
        model.context_tokens = 24

    async with language_stages(folder, change=shorten) as stages:
        events = await stages.generate(text(20, max_tokens=100, ignore_eos=True))
        with pytest.raises(PromptTooLong, match="has 24 tokens, the model's context is 24"):
            await stages.generate(text(24))
    assert len(events) == 4
    assert events[-1].finish_reason is FinishReason.LENGTH


async def test_sequences_wait_for_memory_and_all_are_served(folder: Path) -> None:
    async with language_stages(folder, kv_tokens=64) as stages:
        answers = await asyncio.gather(
            *(stages.generate(text(20, max_tokens=8, ignore_eos=True)) for _ in range(8))
        )
    assert {tuple(ids(events)) for events in answers} == {tuple(ids(answers[0]))}


async def test_a_closed_stream_frees_the_sequence_and_others_go_on(folder: Path) -> None:
    async with language_stages(folder) as stages:
        other = asyncio.create_task(stages.generate(text(20, max_tokens=30, ignore_eos=True)))
        events = stages.fused.generate(text(20, max_tokens=1000, ignore_eos=True))
        async for _ in events:
            break
        await events.aclose()
        assert len(await other) == 30


async def test_a_cancelled_prefill_leaves_nothing(folder: Path, picture_case: Case) -> None:
    async with language_stages(folder, chunk_tokens=2) as stages:
        request = picture_case.request(stages.publish, Sampling(max_tokens=5))
        # Longer than a machine that others use may keep us from looking.
        prompt = replace(request.prompt, token_ids=(*request.prompt.token_ids, *[40] * 1500))
        task = asyncio.create_task(stages.prefill.prefill(replace(request, prompt=prompt)))
        await until_running(stages)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)
        assert not stages.tensors.held


async def test_keys_and_values_carry_the_language_digest_and_one_shape(folder: Path) -> None:
    async with language_stages(folder) as stages:
        prefilled = await stages.prefill.prefill(text(20, max_tokens=5, ignore_eos=True))
        assert prefilled.kv is not None
        await stages.tensors.release([prefilled.kv])
    assert prefilled.kv.fingerprint == KV_FINGERPRINT
    assert prefilled.kv.shape == (3, 2, 20, 2, 16)
    assert prefilled.state.output_token_ids == (prefilled.first.token_id,)


async def test_an_answer_taken_over_after_several_tokens_goes_on_exactly(folder: Path) -> None:
    async with language_stages(folder) as stages:
        sampling = Sampling(max_tokens=10, ignore_eos=True)
        whole = await stages.generate(text(20, max_tokens=10, ignore_eos=True))
        prefilled = await stages.prefill.prefill(text(20, max_tokens=10, ignore_eos=True))
        assert prefilled.kv is not None
        state = replace(prefilled.state, output_token_ids=tuple(ids(whole)[:4]))
        request = DecodeInput("test", prefilled.kv, state, sampling)
        rest = [event async for event in stages.decode.decode(request)]
    assert ids(rest) == ids(whole)[4:]
    assert [event.text for event in rest] == [event.text for event in whole[4:]]


async def test_log_probabilities_come_with_text_and_bytes(folder: Path) -> None:
    async with language_stages(folder) as stages:
        events = await stages.generate(
            text(20, max_tokens=3, ignore_eos=True, logprobs=True, top_logprobs=2)
        )
    for event in events:
        assert event.logprobs is not None
        assert event.logprobs.chosen.token_id == event.token_id
        assert event.logprobs.top[0] == event.logprobs.chosen
        assert event.logprobs.top[0].logprob >= event.logprobs.top[1].logprob
        assert event.logprobs.chosen.utf8


async def test_a_long_prompt_does_not_hold_up_a_short_one(folder: Path) -> None:
    async with language_stages(folder, chunk_tokens=16) as stages:
        order: list[str] = []

        async def first_token(name: str, length: int) -> None:
            await stages.generate(text(length, max_tokens=1))
            order.append(name)

        await asyncio.gather(first_token("long", 1500), first_token("short", 12))
    assert order == ["short", "long"]
