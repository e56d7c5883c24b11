"""The services over real gRPC, in front of stages that do exactly what a test asks for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from itertools import pairwise

import grpc
import pytest
import torch
from cluster.waiting import eventually
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from scripted_services import (
    CONTENT,
    FINGERPRINT,
    INFLIGHT,
    KEY,
    MODEL,
    PIXELS,
    EndlessFused,
    ScriptedEncode,
    data,
    error_of,
    header,
    question,
    serving,
)
from triptych_contract.errors import (
    DeadlineExceeded,
    FingerprintMismatch,
    InternalError,
    InvalidRequest,
    NonFinite,
    Overloaded,
    TooLarge,
    TriptychError,
    Unavailable,
)
from triptych_contract.fingerprints import EncoderIdentity, encoder_fingerprint
from triptych_contract.rpc import error_from_rpc
from triptych_contract.v1 import (
    common_pb2,
    stages_pb2,
    worker_pb2,
    worker_pb2_grpc,
)
from triptych_worker.serving import checks, peer_leases
from triptych_worker.serving.peer_leases import GrpcPeerLeases
from triptych_worker.transfer.layout import CHECKSUM_BYTES, DTYPES
from triptych_worker.transfer.peers import PeerChannels

pytestmark = pytest.mark.torch

SECONDS = 60.0  # for anything to come; on a machine that others use too


def test_sizes_that_are_known_without_torch_are_those_of_torch() -> None:
    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == checks.ELEMENT_BYTES
    assert checks.CHECKSUM_BYTES == CHECKSUM_BYTES


@pytest.mark.parametrize("cuts", [[], [1], [47, 48, 49], list(range(1, 51))])
async def test_tensors_arrive_whole_however_their_bytes_are_cut(cuts: list[int]) -> None:
    edges = [0, *cuts, len(CONTENT)]
    chunks = [data(CONTENT[a:b]) for a, b in pairwise(edges)]
    stage = ScriptedEncode()
    async with serving(stage) as served:
        answer = await served.encoder.Encode(iter([header(), *chunks]))
    assert answer.handle.key == KEY
    assert dict(answer.times.seconds) == {"encode": 0.5}
    [item] = stage.seen
    assert torch.equal(item.tensors["pixel_values"], PIXELS.reshape(4, 3))
    assert item.tensors["mask"].tolist() == [1, 0, 1]
    assert (item.grid, item.visual_tokens) == ((1, 2, 2), 1)


@pytest.mark.parametrize(
    ("chunks", "kind", "says"),
    [
        ([], InvalidRequest, "header: must be the first message"),
        ([data(CONTENT)], InvalidRequest, "header: must be the first message"),
        ([header()], InvalidRequest, "0 bytes came of the 51"),
        ([header(), data(CONTENT[:-1])], InvalidRequest, "50 bytes came of the 51"),
        ([header(), data(CONTENT), data(b"x")], InvalidRequest, "more bytes than the 51"),
        ([header(), header()], InvalidRequest, "only bytes may follow"),
        ([header(key=b"x")], InvalidRequest, "key: must be 32 bytes"),
        ([header(fingerprint="ee" * 32)], FingerprintMismatch, "the request is for eeee"),
        (
            [header(tensors=[stages_pb2.NamedTensor(
                name="a", tensor=common_pb2.TensorSpec(shape=[INFLIGHT + 1], dtype="uint8")
            )])],
            TooLarge,
            f"bound of {INFLIGHT}",
        ),
    ],
)  # fmt: skip
async def test_a_malformed_encode_is_refused_and_the_next_one_is_served(
    chunks: list[stages_pb2.EncodeChunk], kind: type[TriptychError], says: str
) -> None:
    async with serving(ScriptedEncode()) as served:
        error = await error_of(lambda: served.encoder.Encode(iter(chunks)))
        assert isinstance(error, kind)
        assert says in error.message
        answer = await served.encoder.Encode(iter([header(), data(CONTENT)]))
        assert answer.handle.lease_id == "lease"


async def test_pixels_beyond_the_bytes_in_flight_are_overload_with_a_hint() -> None:
    hold = asyncio.Event()
    big = [
        stages_pb2.NamedTensor(
            name="a", tensor=common_pb2.TensorSpec(shape=[INFLIGHT - 10], dtype="uint8")
        )
    ]

    async def slow() -> AsyncIterator[stages_pb2.EncodeChunk]:
        yield header(tensors=big)
        yield data(b"x")
        await hold.wait()

    async def small() -> AsyncIterator[stages_pb2.EncodeChunk]:
        yield header()
        yield data(CONTENT)

    async with serving(ScriptedEncode(), peer_seconds=2 * SECONDS) as served:

        async def asked(chunks: AsyncIterator[stages_pb2.EncodeChunk]) -> TriptychError | None:
            try:
                await served.encoder.Encode(chunks)
            except grpc.aio.AioRpcError as error:
                return error_from_rpc(error)
            return None

        async def holding() -> None:
            while isinstance(await asked(slow()), Overloaded):  # a question of below came first
                pass

        async def refused() -> TriptychError | None:
            return await asked(small())

        async def taken() -> bool:
            return await refused() is None

        first = asyncio.create_task(holding())
        error = await eventually(refused, "the other's bytes", seconds=SECONDS)
        assert isinstance(error, Overloaded)
        assert error.retry_after == 0.5
        first.cancel()
        await eventually(taken, "their end", seconds=SECONDS)


async def test_a_sender_that_pauses_for_too_long_is_ended() -> None:
    async def stalled() -> AsyncIterator[stages_pb2.EncodeChunk]:
        yield header()
        await asyncio.sleep(30)

    async with serving(ScriptedEncode(), peer_seconds=0.2) as served:
        error = await error_of(lambda: served.encoder.Encode(stalled()))
    assert isinstance(error, DeadlineExceeded)


async def test_an_error_of_the_tree_reaches_the_client_as_it_is() -> None:
    stage = ScriptedEncode(error=NonFinite("the embedding holds NaN; send another picture"))
    async with serving(stage) as served:
        error = await error_of(lambda: served.encoder.Encode(iter([header(), data(CONTENT)])))
    assert isinstance(error, NonFinite)
    assert error.message == "the embedding holds NaN; send another picture"


async def test_a_bug_is_logged_with_its_request_and_told_without_its_insides(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = ScriptedEncode(error=ZeroDivisionError("secret detail"))
    with caplog.at_level(logging.ERROR):
        async with serving(stage) as served:
            error = await error_of(lambda: served.encoder.Encode(iter([header(), data(CONTENT)])))
    assert isinstance(error, InternalError)
    assert "secret" not in error.message
    assert "secret detail" in caplog.text


async def test_a_lease_answers_every_key_in_order() -> None:
    other = b"o" * 32
    async with serving(ScriptedEncode(held={KEY})) as served:
        answer = await served.encoder.Lease(
            stages_pb2.LeaseRequest(fingerprint=FINGERPRINT, keys=[other, KEY])
        )
    assert [(one.miss, one.handle.key) for one in answer.results] == [(True, b""), (False, KEY)]


async def test_a_lease_may_name_a_peer_and_ask_for_a_second_look() -> None:
    encode = ScriptedEncode(held={KEY})
    async with serving(encode) as served:
        asked = {"fingerprint": FINGERPRINT, "keys": [KEY]}
        await served.encoder.Lease(stages_pb2.LeaseRequest(**asked))
        await served.encoder.Lease(stages_pb2.LeaseRequest(**asked, verify=True, peer="10.0.0.2:1"))
        error = await error_of(
            lambda: served.encoder.Lease(stages_pb2.LeaseRequest(**asked, peer="no address"))
        )
    assert encode.asked == [(False, ""), (True, "10.0.0.2:1")]
    assert isinstance(error, InvalidRequest)


async def test_an_encoder_asks_another_for_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    # What it answers is looked at here, not how soon.
    monkeypatch.setattr(peer_leases, "_CALL_SECONDS", SECONDS)
    encode, channels = ScriptedEncode(held={KEY}), PeerChannels()
    leases = GrpcPeerLeases(channels)
    async with serving(encode) as served:
        handle = await leases.lease(served.address, KEY, FINGERPRINT)
        assert handle is not None
        assert (handle.key, handle.lease_id, handle.shape) == (KEY, "lease", (4, 8))
        assert await leases.lease(served.address, b"o" * 32, FINGERPRINT) is None
        with pytest.raises(FingerprintMismatch):
            await leases.lease(served.address, KEY, "00" * 32)
    with pytest.raises(Unavailable):
        await leases.lease(served.address, KEY, FINGERPRINT)
    channels.close()
    assert encode.asked == [(False, "")] * 2  # a peer asks nobody else


async def test_tokens_stream_one_message_each() -> None:
    async with serving(fused=EndlessFused(last=3)) as served:
        events = [event async for event in served.fused.Generate(question())]
    assert [(event.token_id, event.text) for event in events] == [(0, "x"), (1, "x"), (2, "x")]


async def test_another_language_model_is_refused_with_a_retryable_error() -> None:
    wrong = question()
    wrong.model_digest = "00" * 32
    async with serving(fused=EndlessFused()) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(served.fused.Generate(wrong)))
    assert isinstance(error_from_rpc(caught.value), FingerprintMismatch)


async def test_cancelling_a_stream_closes_the_stage_s_iterator() -> None:
    stage = EndlessFused(pause=0.01)
    async with serving(fused=stage) as served:
        call = served.fused.Generate(question())
        await anext(aiter(call))
        call.cancel()
        await asyncio.wait_for(stage.closed.wait(), SECONDS)
        await asyncio.wait_for(served.worker.admission.idle(), SECONDS)
        assert served.worker.admission.running == 0


async def test_a_client_that_reads_nothing_is_ended_and_its_sequence_freed() -> None:
    stage = EndlessFused(text="x" * 100_000)
    async with serving(fused=stage, peer_seconds=0.3) as served:
        served.fused.Generate(question())
        await asyncio.wait_for(stage.closed.wait(), SECONDS)


async def test_work_is_refused_while_starting_and_health_and_describe_say_so() -> None:
    async with serving(loaded=False) as served:
        error = await error_of(
            lambda: served.encoder.Lease(
                stages_pb2.LeaseRequest(fingerprint=FINGERPRINT, keys=[KEY])
            )
        )
        assert isinstance(error, Unavailable)
        assert "starting" in error.message
        described = await worker_pb2_grpc.WorkerStub(served.channel).Describe(
            worker_pb2.DescribeRequest()
        )
        assert described.state == common_pb2.STATE_STARTING
        assert not described.can_encode
        check = await health_pb2_grpc.HealthStub(served.channel).Check(
            health_pb2.HealthCheckRequest()
        )
        assert check.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_drain_refuses_new_work_and_lets_running_work_end() -> None:
    stage = EndlessFused(pause=0.01, last=20)
    async with serving(fused=stage) as served:
        call = aiter(served.fused.Generate(question()))
        await anext(call)
        served.worker.admission.drain()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(served.fused.Generate(question())))
        assert error_from_rpc(caught.value).message == "draining; use another pod"
        assert len([event async for event in call]) == 19
        await asyncio.wait_for(served.worker.admission.idle(), SECONDS)


async def test_describe_tells_identities_and_state() -> None:
    async with serving(ScriptedEncode()) as served:
        described = await worker_pb2_grpc.WorkerStub(served.channel).Describe(
            worker_pb2.DescribeRequest()
        )
    assert described.tier == common_pb2.TIER_FUSED
    assert described.state == common_pb2.STATE_SERVING
    assert described.fingerprint == FINGERPRINT
    assert encoder_fingerprint(EncoderIdentity.parse(described.encoder_identity)) == FINGERPRINT
    assert described.model_digest == MODEL
    assert described.can_encode
    assert list(described.transports) == ["grpc"]


async def test_caches_tell_what_they_hold_and_drop_what_is_stale() -> None:
    async with serving(ScriptedEncode()) as served:
        stub = worker_pb2_grpc.CacheAdminStub(served.channel)
        held = await stub.Holdings(worker_pb2.HoldingsRequest())
        assert [(one.cache, one.bytes) for one in held.holdings] == [("encoder", 100)]
        dropped = await stub.DropOthers(worker_pb2.DropOthersRequest(keep=FINGERPRINT))
    assert (dropped.entries_dropped, dropped.bytes_freed) == (1, 100)
    assert dropped.remaining.instance == "instance-1"
    assert not dropped.remaining.holdings


async def test_health_is_watched_by_service_and_follows_every_change() -> None:
    status = health_pb2.HealthCheckResponse
    async with serving(ScriptedEncode()) as served:
        stub = health_pb2_grpc.HealthStub(served.channel)
        request = health_pb2.HealthCheckRequest(service="triptych.v1.Encoder")
        watch = aiter(stub.Watch(request))
        seen = [(await anext(watch)).status]
        for serving_now in (True, False):
            served.health.set(serving=serving_now)
            seen.append((await anext(watch)).status)
        assert seen == [status.NOT_SERVING, status.SERVING, status.NOT_SERVING]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="triptych.v1.Prefill"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_what_the_tier_serves() -> None:
    async with serving(ScriptedEncode()) as served:
        stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        answer = await anext(aiter(stub.ServerReflectionInfo(iter([ask]))))
    assert {one.name for one in answer.list_services_response.service} == {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "triptych.v1.CacheAdmin",
        "triptych.v1.Encoder",
        "triptych.v1.Fused",
        "triptych.v1.Transfer",
        "triptych.v1.Worker",
    }
