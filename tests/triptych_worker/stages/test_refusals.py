"""What the language stages refuse, what fails, and that it fails alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from language_stages import ids, language_stages, text, until_running
from references import Case
from triptych_contract.errors import (
    FingerprintMismatch,
    InternalError,
    InvalidRequest,
    LeaseExpired,
    NonFinite,
    Overloaded,
    PromptTooLong,
)
from triptych_worker.domain import (
    DecodeInput,
    GenerateInput,
    Prompt,
    Sampling,
)
from triptych_worker.language.model import LanguageModel

pytestmark = pytest.mark.torch

OTHER = "ef" * 32


async def test_what_exceeds_the_memory_is_refused_and_what_fits_is_served(folder: Path) -> None:
    async with language_stages(folder, kv_tokens=40) as stages:
        with pytest.raises(PromptTooLong, match="need 41 tokens"):
            await stages.generate(text(30, max_tokens=12))
        events = await stages.generate(text(30, max_tokens=11, ignore_eos=True))
    assert len(events) == 11


async def test_a_full_queue_is_overload_with_a_hint(folder: Path) -> None:
    async with language_stages(folder, queue_tokens=60, max_running=1) as stages:
        # Longer than a machine that others use may keep us from asking.
        long = text(30, max_tokens=800, ignore_eos=True)
        running = asyncio.create_task(stages.generate(long))
        await until_running(stages)
        request = text(30, max_tokens=2, ignore_eos=True)
        outcomes = await asyncio.gather(
            *(stages.generate(request) for _ in range(4)), return_exceptions=True
        )
        assert len(await running) == 800
    refused = [outcome for outcome in outcomes if isinstance(outcome, Overloaded)]
    assert len(refused) == 2
    assert all(error.retry_after >= 0.5 for error in refused)


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
