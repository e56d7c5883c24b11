"""Prefill, decode and fused as their callers see them: events, times, limits, refusals, freeing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from language_stages import KV_FINGERPRINT, Stages, language_stages
from references import Case, Reference, message_cases
from triptych_contract.errors import (
    FingerprintMismatch,
    InternalError,
    InvalidRequest,
    LeaseExpired,
    NonFinite,
    Overloaded,
    PromptTooLong,
    Unavailable,
)
from triptych_contract.names import Count, Metric, Stage
from triptych_worker.domain import (
    DecodeInput,
    FinishReason,
    GenerateInput,
    Prompt,
    Sampling,
    TokenEvent,
)
from triptych_worker.language.model import LanguageModel

pytestmark = pytest.mark.torch

FAMILY = "qwen2_5_vl"
OTHER = "ef" * 32


@pytest.fixture(scope="session")
def folder(tiny_folder: Callable[[str], Path]) -> Path:
    torch.set_num_threads(1)
    return tiny_folder(FAMILY)


@pytest.fixture(scope="session")
def picture_case(folder: Path) -> Case:
    return Reference(folder).case(message_cases()["two equal images"], max_tokens=12)


def text(length: int, **sampling: object) -> GenerateInput:
    token_ids = tuple(10 + index % 200 for index in range(length))
    return GenerateInput("test", "", Prompt(token_ids), Sampling(**sampling))  # type: ignore[arg-type] # by name


async def until_running(stages: Stages) -> None:
    async with asyncio.timeout(10):
        while not stages.engine.load().running:  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(0.001)


def ids(events: list[TokenEvent]) -> list[int]:
    return [event.token_id for event in events]


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
    }
    assert set(last.seconds) == {Stage.DECODE}
    assert last.counts == {Count.OUTPUT_TOKENS: 5}
    assert len(observed.gaps) == 4
    assert {stage for stage, _ in observed.durations} == {*first.seconds, *last.seconds}
    assert observed.counters == {
        Metric.INPUT_TOKENS: len(picture_case.token_ids),
        Metric.OUTPUT_TOKENS: 5,
    }


async def test_decode_tells_its_queue_and_the_transfer(folder: Path) -> None:
    async with language_stages(folder) as stages:
        events = await stages.generate_split(text(20, max_tokens=4, ignore_eos=True))
    last = events[-1].times
    assert last is not None
    assert set(last.seconds) == {Stage.DECODE_QUEUE, Stage.KV_TRANSFER, Stage.DECODE}
    assert last.counts == {Count.OUTPUT_TOKENS: 4}


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


async def test_what_exceeds_the_memory_is_refused_and_what_fits_is_served(folder: Path) -> None:
    async with language_stages(folder, kv_tokens=40) as stages:
        with pytest.raises(PromptTooLong, match="need 41 tokens"):
            await stages.generate(text(30, max_tokens=12))
        events = await stages.generate(text(30, max_tokens=11, ignore_eos=True))
    assert len(events) == 11


async def test_sequences_wait_for_memory_and_all_are_served(folder: Path) -> None:
    async with language_stages(folder, kv_tokens=64) as stages:
        answers = await asyncio.gather(
            *(stages.generate(text(20, max_tokens=8, ignore_eos=True)) for _ in range(8))
        )
    assert {tuple(ids(events)) for events in answers} == {tuple(ids(answers[0]))}


async def test_a_full_queue_is_overload_with_a_hint(folder: Path) -> None:
    async with language_stages(folder, queue_tokens=60, max_running=1) as stages:
        request = text(30, max_tokens=40, ignore_eos=True)
        running = asyncio.create_task(stages.generate(request))
        await until_running(stages)
        outcomes = await asyncio.gather(
            *(stages.generate(request) for _ in range(4)), return_exceptions=True
        )
        assert len(await running) == 40
    refused = [outcome for outcome in outcomes if isinstance(outcome, Overloaded)]
    assert len(refused) == 2
    assert all(error.retry_after >= 0.5 for error in refused)


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
        task = asyncio.create_task(stages.prefill.prefill(request))
        await until_running(stages)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)
        assert not stages.tensors.held


async def test_embeddings_of_another_encoder_are_refused_and_their_leases_returned(
    folder: Path, picture_case: Case
) -> None:
    async with language_stages(folder) as stages:
        for fingerprints in ((OTHER, OTHER), (OTHER, None), (None, OTHER)):
            of_media, of_request = fingerprints
            request = picture_case.request(
                lambda picture, f=of_media: stages.publish(picture, *([f] if f else [])),
                Sampling(),
                *([of_request] if of_request else []),
            )
            with pytest.raises(FingerprintMismatch, match="lease the embedding again"):
                await stages.generate(request)
        await asyncio.sleep(0)
        assert not stages.tensors.held


async def test_a_stage_without_a_fingerprint_of_its_own_takes_that_of_the_request(
    folder: Path, picture_case: Case
) -> None:
    async with language_stages(folder, own_fingerprint="") as stages:
        request = picture_case.request(
            lambda picture: stages.publish(picture, OTHER), Sampling(max_tokens=12), OTHER
        )
        assert ids(await stages.generate(request)) == list(picture_case.answered.token_ids)


@pytest.mark.parametrize("cut", ["rows", "width"])
async def test_embeddings_that_do_not_fill_their_spans_are_refused(
    folder: Path, picture_case: Case, cut: str
) -> None:
    pictures = tuple(
        replace(picture, rows=picture.rows[:-1] if cut == "rows" else picture.rows[:, :-1])
        for picture in picture_case.pictures
    )
    async with language_stages(folder) as stages:
        request = replace(picture_case, pictures=pictures).request(stages.publish, Sampling())
        with pytest.raises(InvalidRequest, match="does not fill 10 placeholder tokens of width 64"):
            await stages.generate(request)
        assert not stages.tensors.held


async def test_a_token_outside_the_vocabulary_is_refused(folder: Path) -> None:
    request = GenerateInput("test", "", Prompt((1, 100_000)), Sampling())
    async with language_stages(folder) as stages:
        with pytest.raises(InvalidRequest, match="outside the vocabulary"):
            await stages.generate(request)


async def test_an_expired_embedding_is_an_error_and_the_worker_serves_on(
    folder: Path, picture_case: Case
) -> None:
    async with language_stages(folder) as stages:
        request = picture_case.request(stages.publish, Sampling(max_tokens=12))
        stages.tensors.held.clear()
        with pytest.raises(LeaseExpired):
            await stages.generate(request)
        again = picture_case.request(stages.publish, Sampling(max_tokens=12))
        assert ids(await stages.generate(again)) == list(picture_case.answered.token_ids)


async def test_decode_refuses_what_is_not_its_own(folder: Path) -> None:
    async with language_stages(folder) as stages:
        prefilled = await stages.prefill.prefill(text(20, max_tokens=5, ignore_eos=True))
        assert prefilled.kv is not None
        good = DecodeInput("test", prefilled.kv, prefilled.state, Sampling(max_tokens=5))
        longer = replace(good.state, prompt_tokens=21)
        bad = {
            FingerprintMismatch: replace(good, kv=replace(good.kv, fingerprint=OTHER)),
            InvalidRequest: replace(good, state=longer),
        }
        for error, request in bad.items():
            with pytest.raises(error):
                [event async for event in stages.decode.decode(request)]


async def test_decode_has_nothing_to_add_to_a_full_answer(folder: Path) -> None:
    async with language_stages(folder) as stages:
        prefilled = await stages.prefill.prefill(text(20, max_tokens=5, ignore_eos=True))
        assert prefilled.kv is not None
        request = DecodeInput("test", prefilled.kv, prefilled.state, Sampling(max_tokens=1))
        with pytest.raises(InvalidRequest, match="nothing is left to decode"):
            [event async for event in stages.decode.decode(request)]
        await asyncio.sleep(0)
        assert not stages.tensors.held


async def test_expired_keys_and_values_free_the_range(folder: Path) -> None:
    async with language_stages(folder) as stages:
        prefilled = await stages.prefill.prefill(text(20, max_tokens=5, ignore_eos=True))
        assert prefilled.kv is not None
        stages.tensors.held.clear()
        request = DecodeInput("test", prefilled.kv, prefilled.state, Sampling(max_tokens=5))
        with pytest.raises(LeaseExpired):
            [event async for event in stages.decode.decode(request)]


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


def _poison(model: LanguageModel, token_id: int) -> None:
    """Makes every sequence that has ``token_id`` produce NaN."""
    model._embedding = model._embedding.clone()
    model._embedding[token_id] = float("nan")


async def test_a_sequence_that_is_not_finite_fails_alone(folder: Path) -> None:
    poison = GenerateInput("test", "", Prompt((10, 7, 11)), Sampling(max_tokens=5))
    async with language_stages(folder, change=lambda model: _poison(model, 7)) as stages:
        good, bad = await asyncio.gather(
            stages.generate(text(20, max_tokens=20, ignore_eos=True)),
            stages.generate(poison),
            return_exceptions=True,
        )
    assert isinstance(bad, NonFinite)
    assert isinstance(good, list)
    assert len(good) == 20


async def test_a_failing_step_fails_its_sequences_and_the_engine_goes_on(
    folder: Path, picture_case: Case
) -> None:
    def narrow(model: LanguageModel) -> None:
        model.row_width = 63  # the check passes, the forward of such rows fails

    pictures = tuple(replace(each, rows=each.rows[:, :-1]) for each in picture_case.pictures)
    async with language_stages(folder, change=narrow) as stages:
        request = replace(picture_case, pictures=pictures).request(stages.publish, Sampling())
        with pytest.raises(InternalError, match="failed on this request"):
            await stages.generate(request)
        assert len(await stages.generate(text(20, max_tokens=3, ignore_eos=True))) == 3


async def test_a_draining_worker_finishes_and_takes_nothing_new(folder: Path) -> None:
    async with language_stages(folder) as stages:
        running = asyncio.create_task(stages.generate(text(20, max_tokens=30, ignore_eos=True)))
        await until_running(stages)
        stages.engine.stop_admitting()
        with pytest.raises(Unavailable, match="draining"):
            await stages.generate(text(20))
        assert not await stages.engine.wait_idle(0.0)
        assert len(await running) == 30
        assert await stages.engine.wait_idle(1.0)


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
