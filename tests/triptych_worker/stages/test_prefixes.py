"""Prompts that begin alike: computed once, answered as if each were computed whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from language_stages import Stages, ids, language_stages, text
from references import FINGERPRINT, Case, Part, Reference, noise
from triptych_contract.errors import NonFinite, PromptTooLong
from triptych_contract.fingerprints import tenant_salt
from triptych_contract.names import Count, Metric
from triptych_worker.domain import GenerateInput, Prompt, Sampling, TokenEvent
from triptych_worker.language.model import LanguageModel
from triptych_worker.language.prefixes import BLOCK_TOKENS

pytestmark = pytest.mark.torch

PLENTY = 4_000_000  # bytes: all prompts of one test
MAX_TOKENS = 24
WAIT_SECONDS = 60.0
ROUNDING = 1e-4  # as in test_exactness
OTHER_FINGERPRINT = "ef" * 32


@pytest.fixture(scope="session")
def reference(tiny_folder: Callable[[str], Path]) -> Callable[[str], Reference]:
    """Whole models, each loaded once."""
    torch.set_num_threads(1)
    return cache(lambda family: Reference(tiny_folder(family)))


def cached(events: Sequence[TokenEvent]) -> int:
    """Tokens of the prompt that were not computed."""
    assert events[0].times is not None
    return events[0].times.counts[Count.KV_PREFIX_TOKENS]


def assert_exact(events: Sequence[TokenEvent], case: Case) -> None:
    """The answer is the reference's, or leaves it where its best two are within rounding."""
    pairs = list(zip(ids(list(events)), case.answered.token_ids, strict=False))
    first = next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    assert first is None or case.answered.gaps[first] < ROUNDING, f"token {first} differs"


def reusable(first: Case, second: Case) -> int:
    """Tokens of ``second`` in whole blocks that ``first`` begins with too."""
    pairs = zip(first.token_ids, second.token_ids, strict=False)
    same = next((at for at, (one, other) in enumerate(pairs) if one != other), len(first.token_ids))
    return same // BLOCK_TOKENS * BLOCK_TOKENS


@pytest.mark.parametrize("split", [False, True], ids=["fused", "prefill and decode"])
@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "smolvlm"])
async def test_another_question_about_a_picture_computes_the_question_alone(
    tiny_folder: Callable[[str], Path],
    reference: Callable[[str], Reference],
    family: str,
    *,
    split: bool,
) -> None:
    picture, other = noise(112, 112, 1), noise(56, 140, 2)
    questions: list[Sequence[Part]] = [
        [picture, "What is in the picture?"],
        [picture, "How many shapes does it show, and where?"],
        [picture, "And beside", other, "how many?"],
        [other, "What is in the picture?"],
    ]
    cases = [reference(family).case(parts, MAX_TOKENS) for parts in questions]
    sampling = Sampling(max_tokens=MAX_TOKENS)
    async with language_stages(tiny_folder(family), prefix_bytes=PLENTY) as stages:
        generate = stages.generate_split if split else stages.generate
        answers = [await generate(case.request(stages.publish, sampling)) for case in cases]
        again = [await generate(case.request(stages.publish, sampling)) for case in cases]
    for events, case in zip([*answers, *again], [*cases, *cases], strict=True):
        assert_exact(events, case)
    assert cached(answers[0]) == 0
    visual = cases[0].pictures[0].spans[-1]
    beyond = (visual.offset + visual.length) // BLOCK_TOKENS * BLOCK_TOKENS
    assert cached(answers[1]) == reusable(cases[0], cases[1]) >= beyond
    assert cached(answers[2]) >= beyond
    assert cached(answers[3]) < visual.offset + BLOCK_TOKENS  # of another picture: nothing
    assert [cached(events) for events in again] == [
        (len(case.token_ids) - 1) // BLOCK_TOKENS * BLOCK_TOKENS for case in cases
    ]


@pytest.mark.parametrize("family", ["qwen2_5_vl", "smolvlm"])
async def test_the_next_turn_of_a_conversation_computes_the_new_turn_alone(
    tiny_folder: Callable[[str], Path], reference: Callable[[str], Reference], family: str
) -> None:
    parts: Sequence[Part] = [noise(112, 112, 1), "What is in the picture?"]
    sampling = Sampling(max_tokens=MAX_TOKENS, ignore_eos=True)
    first = reference(family).case(parts, MAX_TOKENS)
    # The last token of an answer is never computed on.
    known = (len(first.token_ids) + MAX_TOKENS - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    async with language_stages(tiny_folder(family), prefix_bytes=PLENTY) as stages:
        answer = await stages.generate(first.request(stages.publish, sampling))
        turn = [*ids(answer), *range(40, 51)]
        second = reference(family).case(parts, MAX_TOKENS, more=turn)
        await until_kept(stages, known)
        events = await stages.generate(second.request(stages.publish, Sampling(max_tokens=24)))
    assert_exact(events, second)
    assert cached(events) == known > len(first.token_ids)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
async def test_at_a_blocks_border_the_last_token_is_always_computed(
    folder: Path, beyond: int
) -> None:
    request = text(3 * BLOCK_TOKENS + beyond, max_tokens=8, ignore_eos=True)
    async with language_stages(folder) as stages:
        whole = await stages.generate(request)
    async with language_stages(folder, prefix_bytes=PLENTY) as stages:
        cold = await stages.generate(request)
        warm = await stages.generate(request)
    assert ids(whole) == ids(cold) == ids(warm)
    assert cached(warm) == (3 if beyond > 0 else 2) * BLOCK_TOKENS


@pytest.mark.parametrize("split", [False, True], ids=["fused", "prefill and decode"])
async def test_drawn_tokens_and_their_probabilities_do_not_tell_what_was_kept(
    folder: Path, picture_case: Case, *, split: bool
) -> None:
    sampling = Sampling(
        temperature=1.5, top_p=0.95, seed=11, max_tokens=16, min_tokens=16, logprobs=True,
        top_logprobs=3,
    )  # fmt: skip
    async with language_stages(folder, prefix_bytes=PLENTY) as stages:
        generate = stages.generate_split if split else stages.generate
        cold, warm = [
            await generate(picture_case.request(stages.publish, sampling)) for _ in range(2)
        ]
    assert ids(cold) == ids(warm)
    assert cached(cold) < cached(warm)
    for one, other in zip(cold, warm, strict=True):
        assert one.logprobs is not None
        assert other.logprobs is not None
        assert one.logprobs.chosen.logprob == pytest.approx(other.logprobs.chosen.logprob, abs=1e-4)


async def test_embeddings_that_stand_in_what_is_known_are_not_fetched(
    folder: Path, picture_case: Case
) -> None:
    async with language_stages(folder, prefix_bytes=PLENTY, cache_bytes=0) as stages:
        sampling = Sampling(max_tokens=4)
        await stages.generate(picture_case.request(stages.publish, sampling))
        assert len(stages.tensors.borrowed) == 2
        longer = picture_case.request(stages.publish, sampling)
        tokens = (*longer.prompt.token_ids, *range(40, 40 + BLOCK_TOKENS))
        warm = await stages.generate(
            replace(longer, prompt=replace(longer.prompt, token_ids=tokens))
        )
        await asyncio.sleep(0)
        assert len(stages.tensors.borrowed) == len(stages.tensors.released) == 2
        assert not stages.tensors.held
    assert warm[0].times is not None
    assert Count.VISUAL_TOKENS not in warm[0].times.counts


@pytest.mark.parametrize(
    "change",
    [
        lambda request: replace(request, salt=tenant_salt("another")),
        lambda request: replace(request, salt=b""),
    ],
    ids=["another tenant", "no tenant"],
)
async def test_tenants_share_no_text(
    folder: Path, change: Callable[[GenerateInput], GenerateInput]
) -> None:
    request = text(60, max_tokens=4)
    async with language_stages(folder, prefix_bytes=PLENTY) as stages:
        await stages.generate(request)
        other = await stages.generate(change(request))
        same = await stages.generate(request)
    assert (cached(other), cached(same)) == (0, 48)


async def test_a_prompt_without_a_tenant_leaves_nothing(folder: Path) -> None:
    async with language_stages(folder, prefix_bytes=PLENTY) as stages:
        await stages.generate(replace(text(60, max_tokens=40, ignore_eos=True), salt=b""))
        await all_kept(stages)
        assert stages.prefixes.stats().bytes == 0


async def test_only_what_hangs_on_another_encoder_is_dropped(
    folder: Path, picture_case: Case
) -> None:
    sampling = Sampling(max_tokens=4)
    async with language_stages(folder, prefix_bytes=PLENTY, own_fingerprint="") as stages:
        await stages.generate(text(60, max_tokens=4))
        await stages.generate(picture_case.request(stages.publish, sampling))
        await all_kept(stages)
        by_encoder = {held.fingerprint: held for held in stages.prefixes.holdings()}
        assert set(by_encoder) == {"", FINGERPRINT}
        old = by_encoder[FINGERPRINT]
        assert stages.prefixes.drop_others(OTHER_FINGERPRINT) == (old.entries, old.bytes)
        assert cached(await stages.generate(text(60, max_tokens=4))) == 48
        await all_kept(stages)
        before = stages.prefixes.stats().bytes
        await stages.generate(picture_case.request(stages.publish, sampling))
        await all_kept(stages)
        assert stages.prefixes.stats().bytes == before  # nothing of the old one comes back


async def test_equal_pictures_of_another_encoder_are_not_equal(
    folder: Path, picture_case: Case
) -> None:
    async with language_stages(folder, prefix_bytes=PLENTY, own_fingerprint="") as stages:
        sampling = Sampling(max_tokens=4)
        await stages.generate(picture_case.request(stages.publish, sampling))
        other = picture_case.request(
            lambda picture: stages.publish(picture, OTHER_FINGERPRINT), sampling, OTHER_FINGERPRINT
        )
        assert cached(await stages.generate(other)) < picture_case.pictures[0].spans[0].offset + 1


async def test_a_small_cache_stays_within_its_bytes_and_answers_stay_the_same(
    folder: Path, picture_case: Case
) -> None:
    async with language_stages(folder, prefix_bytes=100_000) as stages:
        requests = [text(20 + 16 * index, max_tokens=6, ignore_eos=True) for index in range(8)]
        expected = [ids(await stages.generate(request)) for request in requests]
        await asyncio.gather(
            *(
                stages.generate(picture_case.request(stages.publish, Sampling(max_tokens=4)))
                for _ in range(4)
            )
        )
        answers = await asyncio.gather(*(stages.generate(each) for each in [*requests] * 3))
        stats = stages.prefixes.stats()
        stages.prefixes.check_integrity()
    assert [ids(events) for events in answers] == expected * 3
    assert stats.evictions > 0
    assert 0 < stats.bytes <= stats.capacity_bytes


@asynccontextmanager
async def one_waits(folder: Path) -> AsyncIterator[tuple[Stages, asyncio.Task[list[TokenEvent]]]]:
    """A request whose prompt is known in part, and that has no room while another runs; that one
    ends with the block."""
    async with language_stages(folder, prefix_bytes=PLENTY, kv_tokens=2000) as stages:
        await stages.generate(text(60, max_tokens=2, ignore_eos=True))
        running = stages.fused.generate(text(60, max_tokens=1940, ignore_eos=True))
        await anext(running)
        waiting = asyncio.create_task(stages.generate(text(60, max_tokens=40)))
        async with asyncio.timeout(WAIT_SECONDS):
            while not stages.engine.load().waiting:  # noqa: ASYNC110 - the engine tells nobody
                await asyncio.sleep(0.001)
        yield stages, waiting
        await running.aclose()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_request_that_goes_away_while_it_waits_lets_go_what_it_found(folder: Path) -> None:
    async with one_waits(folder) as (stages, waiting):
        assert leased(stages) > 0
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert leased(stages) == 0


async def test_a_request_that_is_refused_lets_go_what_it_found(folder: Path) -> None:
    async with language_stages(folder, prefix_bytes=PLENTY, kv_tokens=100) as stages:
        await stages.generate(text(60, max_tokens=2, ignore_eos=True))
        with pytest.raises(PromptTooLong, match="need 159 tokens of KV memory"):
            await stages.generate(text(60, max_tokens=100))
        assert stages.prefixes.stats().hits == 3
        assert leased(stages) == 0


async def test_what_waits_counts_without_what_is_known(folder: Path) -> None:
    async with one_waits(folder) as (stages, waiting):
        assert stages.engine.load().backlog_tokens == 60 - 48
    assert len(waiting.result()) > 0


async def test_of_prompts_that_come_together_the_first_computes_for_all(folder: Path) -> None:
    async with language_stages(folder, prefix_bytes=PLENTY) as stages:
        requests = [longer(text(160), index) for index in range(8)]
        answers = await asyncio.gather(*(stages.generate(request) for request in requests))
        computed = stages.observed.counters[Metric.INPUT_TOKENS]
    async with language_stages(folder) as stages:
        expected = [ids(await stages.generate(request)) for request in requests]
        whole = stages.observed.counters[Metric.INPUT_TOKENS]
    assert [ids(events) for events in answers] == expected
    assert whole == 8 * 168
    assert computed == whole - sum(cached(events) for events in answers)
    assert computed < 168 + 7 * (168 - 160) + 2 * 160  # two at most had begun before


async def test_what_was_not_finite_is_not_kept(folder: Path) -> None:
    def spoil(model: LanguageModel) -> None:
        model._head = lambda rows: rows.new_full((len(rows), model.vocab_size), float("nan"))

    async with language_stages(folder, prefix_bytes=PLENTY, change=spoil) as stages:
        with pytest.raises(NonFinite):
            await stages.generate(text(60, max_tokens=4))
        assert stages.prefixes.stats().bytes == 0


async def test_hits_are_counted_by_block_with_the_time_that_they_saved(folder: Path) -> None:
    async with language_stages(folder, prefix_bytes=PLENTY) as stages:
        await stages.generate(text(60, max_tokens=4))
        cold = stages.prefixes.stats()
        await stages.generate(text(60, max_tokens=4))
        warm = stages.prefixes.stats()
    assert (cold.hits, cold.misses, cold.seconds_saved) == (0, 3, 0.0)
    assert (warm.hits, warm.misses, warm.evictions) == (3, 3, 0)
    assert warm.seconds_saved > 0
    assert warm.bytes == 3 * BLOCK_TOKENS * stages.engine.model.layout.bytes_per_token


def longer(request: GenerateInput, index: int) -> GenerateInput:
    """The request with 8 tokens of its own behind it, and an answer of 6."""
    tokens = (*request.prompt.token_ids, *range(30 + index, 38 + index))
    sampling = Sampling(max_tokens=6, ignore_eos=True)
    return replace(request, prompt=Prompt(tokens), sampling=sampling)


async def all_kept(stages: Stages) -> None:
    """Until the ends of the answers so far are kept, which is before anything else is computed."""
    await stages.generate(text(2, max_tokens=1))  # too short for a block


async def until_kept(stages: Stages, tokens: int) -> None:
    """Until so many are, which is soon after the answer has ended."""
    size = tokens * stages.engine.model.layout.bytes_per_token
    async with asyncio.timeout(WAIT_SECONDS):
        while stages.prefixes.stats().bytes < size:  # noqa: ASYNC110 - the cache tells nobody
            await asyncio.sleep(0.001)


def leased(stages: Stages) -> int:
    """Bytes that sequences are about to copy."""
    return sum(held.leased_bytes for held in stages.prefixes.holdings())
