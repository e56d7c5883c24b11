"""Real processes: encoder, prefill and decode together, and fused by itself."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import tiny_models
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from metric_docs import assert_told
from triptych_contract.errors import Reason
from triptych_contract.rpc import error_from_rpc
from triptych_contract.v1 import (
    common_pb2,
    stages_pb2,
    stages_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from triptych_worker.language.prefixes import BLOCK_TOKENS
from worker_process import (
    CALL_SECONDS,
    Processed,
    WorkerProcess,
    describe,
    encoded,
    going_on,
    prefilled,
    question,
    released,
    text_only,
)

pytestmark = [pytest.mark.torch, pytest.mark.processes, pytest.mark.timeout(900)]

TIERS = ("encoder", "prefill", "decode", "fused")
COMMON = {
    "grpc.health.v1.Health",
    "grpc.reflection.v1alpha.ServerReflection",
    "triptych.v1.CacheAdmin",
    "triptych.v1.Transfer",
    "triptych.v1.Worker",
}
Workers = dict[str, WorkerProcess]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.build("qwen2_5_vl", tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def workers(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    place = tmp_path_factory.mktemp("workers")
    started = {tier: WorkerProcess(tier, folder, place) for tier in TIERS}
    try:
        for worker in started.values():
            worker.ready()
        yield started
    finally:
        statuses = {tier: worker.end() for tier, worker in started.items()}
    assert statuses == dict.fromkeys(TIERS, 0)


@pytest.fixture
async def picture(workers: Workers, folder: Path) -> Processed:
    return Processed.make(folder, (await describe(workers["encoder"])).fingerprint)


async def reason_of(call: Awaitable[Any]) -> tuple[str, bool]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = error_from_rpc(caught.value)
    return error.reason, error.retryable


async def decoded(workers: Workers, request: stages_pb2.DecodeRequest) -> list[int]:
    async with workers["decode"].channel() as channel:
        call = stages_pb2_grpc.DecodeStub(channel).Decode(request, timeout=CALL_SECONDS)
        return [event.token_id async for event in call]


async def until_idle(worker: WorkerProcess) -> worker_pb2.Load:
    async with asyncio.timeout(CALL_SECONDS):
        while True:
            load = (await describe(worker)).load
            if load == worker_pb2.Load():
                return load
            await asyncio.sleep(0.05)


async def test_a_picture_goes_through_three_processes_and_comes_back_as_from_generate(
    workers: Workers, folder: Path, picture: Processed
) -> None:
    encoding = await encoded(workers["encoder"], picture.chunks())
    described = await describe(workers["prefill"])
    request = question(picture.prompt(encoding.handle), described, picture.fingerprint)
    first = await prefilled(workers["prefill"], request)
    tokens = [first.first.token_id, *await decoded(workers, going_on(first, request))]
    assert tokens == picture.generated(folder, 12)
    assert encoding.times.counts["visual_tokens"] == picture.rows
    assert {"prefill", "embedding_transfer"} <= set(first.first.times.seconds)
    for worker in workers.values():
        await until_idle(worker)


@pytest.mark.parametrize("encoder", ["fused", "encoder"])
async def test_a_fused_worker_answers_from_its_own_and_from_another_s_embedding(
    workers: Workers, folder: Path, picture: Processed, encoder: str
) -> None:
    described = await describe(workers["fused"])
    assert described.fingerprint == picture.fingerprint
    handle = (await encoded(workers[encoder], picture.chunks())).handle
    request = question(picture.prompt(handle), described, picture.fingerprint)
    async with workers["fused"].channel() as channel:
        call = stages_pb2_grpc.FusedStub(channel).Generate(request, timeout=CALL_SECONDS)
        tokens = [event.token_id async for event in call]
    assert tokens == picture.generated(folder, 12)
    await until_idle(workers["fused"])
    await until_idle(workers["encoder"])


@pytest.mark.parametrize(
    ("tier", "services"),
    [
        ("encoder", {"triptych.v1.Encoder"}),
        ("prefill", {"triptych.v1.Prefill"}),
        ("decode", {"triptych.v1.Decode"}),
        ("fused", {"triptych.v1.Encoder", "triptych.v1.Fused"}),
    ],
)
async def test_a_tier_describes_itself_and_lists_exactly_its_services(
    workers: Workers, tier: str, services: set[str]
) -> None:
    described = await describe(workers[tier])
    assert described.tier == common_pb2.Tier.Value(f"TIER_{tier.upper()}")
    assert described.state == common_pb2.STATE_SERVING
    assert bool(described.fingerprint) == (tier in {"encoder", "fused"})
    assert bool(described.model_digest) == (tier != "encoder")
    assert described.can_encode == (tier in {"encoder", "fused"})
    async with workers[tier].channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", *services, "triptych.v1.Transfer"):
            check = await health.Check(
                health_pb2.HealthCheckRequest(service=name), timeout=CALL_SECONDS
            )
            assert check.status == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        answer = await anext(aiter(stub.ServerReflectionInfo(iter([ask]))))
    assert {one.name for one in answer.list_services_response.service} == COMMON | services


async def test_caches_are_told_and_flushed_over_the_wire(
    workers: Workers, picture: Processed
) -> None:
    answer = await encoded(workers["encoder"], picture.chunks())
    async with workers["encoder"].channel() as channel:
        stub = worker_pb2_grpc.CacheAdminStub(channel)
        keep = worker_pb2.DropOthersRequest(keep=picture.fingerprint)
        kept = await stub.DropOthers(keep, timeout=CALL_SECONDS)
    assert kept.entries_dropped == 0
    [held] = kept.remaining.holdings
    assert (held.cache, held.fingerprint) == ("encoder", picture.fingerprint)
    assert held.leased_bytes == answer.handle.size_bytes
    assert held.bytes >= held.leased_bytes
    await released(workers["encoder"], answer.handle)


@pytest.mark.parametrize("tier", ["prefill", "fused"])
async def test_a_prompt_asked_again_is_not_computed_again_nor_its_picture_fetched(
    workers: Workers, folder: Path, tier: str
) -> None:
    fingerprint = (await describe(workers["encoder"])).fingerprint
    picture = Processed.make(folder, fingerprint, seed=3)
    described = await describe(workers[tier])

    async def first() -> common_pb2.TokenEvent:
        handle = (await encoded(workers["encoder"], picture.chunks())).handle
        request = question(picture.prompt(handle), described, fingerprint, max_tokens=1)
        return await first_event(workers[tier], tier, request)

    before = kept_bytes(workers[tier])
    cold = await first()
    async with asyncio.timeout(CALL_SECONDS):
        while kept_bytes(workers[tier]) == before:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.02)
    warm = await first()
    assert warm.token_id == cold.token_id
    assert cold.times.counts["kv_prefix_tokens"] == 0
    assert warm.times.counts["kv_prefix_tokens"] == BLOCK_TOKENS
    assert warm.times.counts["visual_tokens"] == 0
    for each in ("encoder", tier):
        await until_idle(workers[each])


async def first_event(
    worker: WorkerProcess, tier: str, request: stages_pb2.GenerateRequest
) -> common_pb2.TokenEvent:
    """The first token of an answer of one."""
    if tier == "prefill":
        return (await prefilled(worker, request)).first
    async with worker.channel() as channel:
        call = stages_pb2_grpc.FusedStub(channel).Generate(request, timeout=CALL_SECONDS)
        [event] = [event async for event in call]
    return event


def kept_bytes(worker: WorkerProcess) -> str:
    """What the worker tells of the keys and values that it keeps."""
    row = 'triptych_cache_bytes{cache="kv_prefix"} '
    [line] = [line for line in worker.metrics().splitlines() if line.startswith(row)]
    return line


async def test_prefill_and_decode_agree_on_the_model(workers: Workers) -> None:
    prefill, decode = await describe(workers["prefill"]), await describe(workers["decode"])
    assert prefill.model_digest == decode.model_digest
    assert prefill.kv_layout == decode.kv_layout != ""


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_has_the_metrics_that_the_documentation_tells_of(
    workers: Workers, tier: str
) -> None:
    assert_told("workers", workers[tier].metrics())


async def test_metrics_count_what_was_done(workers: Workers, picture: Processed) -> None:
    before = workers["encoder"].metrics()
    answer = await encoded(workers["encoder"], picture.chunks())
    await released(workers["encoder"], answer.handle)
    after = workers["encoder"].metrics()
    assert 'triptych_requests_total{outcome="ok"}' in after
    assert after != before


def _few(p: Processed) -> list[stages_pb2.EncodeChunk]:
    return [p.header(), stages_pb2.EncodeChunk(data=p.content[:-1])]


def _many(p: Processed) -> list[stages_pb2.EncodeChunk]:
    return [*p.chunks(), stages_pb2.EncodeChunk(data=b"x")]


def _wrong_shape(p: Processed) -> list[stages_pb2.EncodeChunk]:
    tensor = stages_pb2.NamedTensor(
        name="pixel_values", tensor=common_pb2.TensorSpec(shape=[3, 5], dtype="float32")
    )
    header = p.header(tensors=[tensor], key=b"w" * 32)
    return [header, stages_pb2.EncodeChunk(data=b"\0" * 60)]


def _wrong_grid(p: Processed) -> list[stages_pb2.EncodeChunk]:
    header = p.header(grid=[1, 1, 1], key=b"g" * 32)
    return [header, stages_pb2.EncodeChunk(data=p.content)]


def _wrong_rows(p: Processed) -> list[stages_pb2.EncodeChunk]:
    header = p.header(visual_tokens=p.rows + 1, key=b"r" * 32)
    return [header, stages_pb2.EncodeChunk(data=p.content)]


def _not_finite(p: Processed) -> list[stages_pb2.EncodeChunk]:
    header = p.header(key=b"n" * 32)
    return [header, stages_pb2.EncodeChunk(data=b"\xff" * len(p.content))]


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        (lambda p: [p.header(key=b"short")], Reason.INVALID_REQUEST),
        (lambda p: [p.header(fingerprint="00" * 32)], Reason.FINGERPRINT_MISMATCH),
        (_wrong_grid, Reason.INVALID_REQUEST),
        (_few, Reason.INVALID_REQUEST),
        (_many, Reason.INVALID_REQUEST),
        (_wrong_shape, Reason.INVALID_REQUEST),
        (_wrong_rows, Reason.INVALID_REQUEST),
        (_not_finite, Reason.NON_FINITE),
    ],
)  # fmt: skip
async def test_a_bad_picture_gets_its_own_error_and_the_encoder_goes_on(
    workers: Workers,
    picture: Processed,
    chunks: Callable[[Processed], list[stages_pb2.EncodeChunk]],
    reason: Reason,
) -> None:
    found, _ = await reason_of(encoded(workers["encoder"], chunks(picture)))
    assert found == reason
    answer = await encoded(workers["encoder"], picture.chunks())
    await released(workers["encoder"], answer.handle)
    await until_idle(workers["encoder"])


async def test_an_embedding_whose_lease_has_ended_is_asked_for_again(
    workers: Workers, picture: Processed
) -> None:
    described = await describe(workers["prefill"])
    answer = await encoded(workers["encoder"], picture.chunks())
    await released(workers["encoder"], answer.handle)
    unseen = common_pb2.Handle()
    unseen.CopyFrom(answer.handle)
    unseen.key = b"u" * 32  # nothing that the prefill's own cache could answer
    request = question(picture.prompt(unseen), described, picture.fingerprint)
    assert await reason_of(prefilled(workers["prefill"], request)) == (
        Reason.LEASE_EXPIRED,
        True,
    )
    await until_idle(workers["prefill"])


async def test_an_embedding_of_another_encoder_is_refused(
    workers: Workers, picture: Processed
) -> None:
    described = await describe(workers["prefill"])
    answer = await encoded(workers["encoder"], picture.chunks())
    request = question(picture.prompt(answer.handle), described, "00" * 32)
    assert await reason_of(prefilled(workers["prefill"], request)) == (
        Reason.FINGERPRINT_MISMATCH,
        True,
    )
    await released(workers["encoder"], answer.handle)


@pytest.mark.parametrize(
    ("prompt", "sampling", "reason"),
    [
        (text_only(5000), {}, Reason.PROMPT_TOO_LONG),
        (text_only(), {"temperature": math.nan}, Reason.INVALID_REQUEST),
        (text_only(), {"max_tokens": 0}, Reason.INVALID_REQUEST),
        (common_pb2.Prompt(token_ids=[10**6]), {}, Reason.INVALID_REQUEST),
        (common_pb2.Prompt(), {}, Reason.INVALID_REQUEST),
    ],
)
async def test_a_bad_prompt_gets_its_own_error_and_prefill_goes_on(
    workers: Workers, prompt: common_pb2.Prompt, sampling: dict[str, Any], reason: Reason
) -> None:
    described = await describe(workers["prefill"])
    bad = prefilled(workers["prefill"], question(prompt, described, **sampling))
    assert await reason_of(bad) == (reason, False)
    good = await prefilled(workers["prefill"], question(text_only(), described))
    assert good.state.prompt_tokens == 4
    await released(workers["prefill"], good.kv)
    await until_idle(workers["prefill"])


async def test_keys_and_values_are_fetched_once_and_of_one_model_only(workers: Workers) -> None:
    request = question(text_only(), await describe(workers["prefill"]))
    first = await prefilled(workers["prefill"], request)
    going = going_on(first, request)
    other = stages_pb2.DecodeRequest()
    other.CopyFrom(going)
    other.kv.fingerprint = "00" * 32
    assert await reason_of(decoded(workers, other)) == (Reason.FINGERPRINT_MISMATCH, True)
    first = await prefilled(workers["prefill"], request)
    going = going_on(first, request)
    assert len(await decoded(workers, going)) > 0
    await until_idle(workers["prefill"])  # the lease is given back behind the answer
    assert await reason_of(decoded(workers, going)) == (Reason.LEASE_EXPIRED, True)
    await until_idle(workers["decode"])


async def test_cancelling_an_answer_frees_its_keys_and_values(workers: Workers) -> None:
    described = await describe(workers["prefill"])
    request = question(text_only(), described, max_tokens=4000, ignore_eos=True)
    first = await prefilled(workers["prefill"], request)
    async with workers["decode"].channel() as channel:
        call = stages_pb2_grpc.DecodeStub(channel).Decode(going_on(first, request))
        events = aiter(call)
        await anext(events)
        assert (await describe(workers["decode"])).load.kv_tokens_used >= 4000
        call.cancel()
        load = await until_idle(workers["decode"])
    assert load.kv_tokens_used == 0
    await until_idle(workers["prefill"])
