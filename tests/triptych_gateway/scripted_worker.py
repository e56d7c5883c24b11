"""A scripted worker: the contract's services on a real port, answering what a test tells it to."""

# ruff: noqa: N802 - methods are named in the protobuf
import asyncio
import socket
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from triptych_contract.errors import FingerprintMismatch, LeaseExpired, TriptychError
from triptych_contract.fingerprints import EncoderIdentity, encoder_fingerprint
from triptych_contract.names import Tier
from triptych_contract.rpc import abort_with
from triptych_contract.v1 import common_pb2 as common
from triptych_contract.v1 import (
    stages_pb2,
    stages_pb2_grpc,
    transfer_pb2,
    transfer_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)

TIERS = {
    Tier.ENCODER: common.TIER_ENCODER,
    Tier.PREFILL: common.TIER_PREFILL,
    Tier.DECODE: common.TIER_DECODE,
    Tier.FUSED: common.TIER_FUSED,
}


@dataclass
class World:
    """All scripted workers, so that a prefill can fetch from an encoder as a real one would."""

    workers: dict[str, "ScriptedWorker"] = field(default_factory=dict)

    def fetch(self, handle: common.Handle) -> None:
        holder = self.workers.get(handle.source)
        if holder is None or handle.lease_id not in holder.leases:
            raise LeaseExpired("the lease is gone")
        holder.leases.discard(handle.lease_id)

    @property
    def leases(self) -> int:
        return sum(len(worker.leases) for worker in self.workers.values())


@dataclass
class ScriptedWorker:
    """One pod. ``script[method]`` holds errors that its next calls end with: a TriptychError, or
    "die" for a connection that breaks, or "hang"."""

    tier: Tier
    world: World
    identity: EncoderIdentity | None = None
    model_digest: str = "a" * 64
    kv_layout: str = "layout"
    answer: tuple[str, ...] = ("It", " is", " red", ".")
    token_seconds: float = 0.0
    encode_seconds: float = 0.0
    context_tokens: int = 4096
    prefix_tokens: int = 0  # of every prompt, not computed again
    state: int = common.STATE_SERVING
    address: str = ""
    held: set[bytes] = field(default_factory=set)
    leases: set[str] = field(default_factory=set)
    released: list[str] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    script: dict[str, deque[object]] = field(default_factory=lambda: defaultdict(deque))
    calls: list[tuple[str, object]] = field(default_factory=list)
    encoded: list[stages_pb2.EncodeHeader] = field(default_factory=list)
    received: int = 0
    fail_after: int | None = None  # tokens until a stream dies
    held_up: asyncio.Event | None = None  # no token comes before it is set
    _count: int = 0
    server: grpc.aio.Server | None = None

    @property
    def instance(self) -> str:
        return f"{self.tier}-{self.address}"

    @property
    def fingerprint(self) -> str:
        return encoder_fingerprint(self.identity) if self.identity else ""

    def named(self, method: str) -> list[object]:
        return [request for name, request in self.calls if name == method]

    async def start(self, port: int = 0) -> None:
        self.server = grpc.aio.server()
        stages_pb2_grpc.add_EncoderServicer_to_server(_Encoder(self), self.server)
        stages_pb2_grpc.add_PrefillServicer_to_server(_Prefill(self), self.server)
        stages_pb2_grpc.add_DecodeServicer_to_server(_Decode(self), self.server)
        stages_pb2_grpc.add_FusedServicer_to_server(_Fused(self), self.server)
        worker_pb2_grpc.add_WorkerServicer_to_server(_Describe(self), self.server)
        transfer_pb2_grpc.add_TransferServicer_to_server(_Transfer(self), self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port(f'127.0.0.1:{port}')}"
        self.world.workers[self.address] = self
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop(grace=None)

    @contextmanager
    def keeping_its_port(self) -> Iterator[int]:
        """The port, which the kernel gives to nobody else while the worker is down."""
        port = int(self.address.rpartition(":")[2])
        with socket.socket() as keeper:  # which does not listen, so that nobody gets in
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            keeper.bind(("127.0.0.1", port))
            yield port

    async def play(self, method: str, request: object, context: grpc.aio.ServicerContext) -> None:
        self.calls.append((method, request))
        if not self.script[method]:
            return
        step = self.script[method].popleft()
        if step == "die":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        if step == "hang":
            await asyncio.sleep(3600)
        if isinstance(step, TriptychError):
            await abort_with(context, step)

    def lease(self, kind: int, key: bytes, fingerprint: str, rows: int) -> common.Handle:
        self._count += 1
        lease_id = f"{self.address}/{self._count}"
        self.leases.add(lease_id)
        return common.Handle(
            kind=kind,
            lease_id=lease_id,
            source=self.address,
            instance=self.instance,
            key=key,
            fingerprint=fingerprint,
            tensor=common.TensorSpec(shape=[rows, 4], dtype="float32"),
            size_bytes=rows * 16,
            checksum=bytes(16),
            ttl_ms=30000,
            transports=["grpc"],
        )

    def event(self, index: int, request: stages_pb2.GenerateRequest) -> common.TokenEvent:
        last = index == len(self.answer) - 1
        end = index + 1 >= request.sampling.max_tokens
        event = common.TokenEvent(token_id=index, text=self.answer[index])
        if request.sampling.logprobs:
            one = common.TokenLogprob(
                token_id=index,
                text=self.answer[index],
                logprob=-0.5,
                utf8=self.answer[index].encode(),
            )
            event.logprobs.CopyFrom(common.Logprobs(chosen=one, top=[one]))
        if last or end:
            event.finish_reason = common.FINISH_REASON_STOP if last else common.FINISH_REASON_LENGTH
        return event

    async def tokens(
        self, start: int, request: object, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[common.TokenEvent]:
        self.running.add(request.request_id)
        try:
            for index in range(start, len(self.answer)):
                if self.fail_after is not None and index - start >= self.fail_after:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
                await asyncio.sleep(self.token_seconds)
                if self.held_up is not None:
                    await self.held_up.wait()
                event = self.event(index, request)
                yield event
                if event.finish_reason:
                    return
        finally:
            self.running.discard(request.request_id)

    def take(self, request: stages_pb2.GenerateRequest) -> None:
        for item in request.prompt.media:
            if item.embedding.fingerprint != request.fingerprint:
                raise FingerprintMismatch("another encoder")
            self.world.fetch(item.embedding)


class _Part:
    def __init__(self, worker: ScriptedWorker) -> None:
        self.worker = worker


class _Describe(_Part, worker_pb2_grpc.WorkerServicer):
    async def Describe(self, request, context):
        worker = self.worker
        await worker.play("Describe", request, context)
        return worker_pb2.DescribeResponse(
            tier=TIERS[worker.tier],
            state=worker.state,
            instance=worker.instance,
            encoder_identity=worker.identity.canonical() if worker.identity else "",
            fingerprint=worker.fingerprint,
            model_digest="" if worker.tier is Tier.ENCODER else worker.model_digest,
            kv_layout="" if worker.tier is Tier.ENCODER else worker.kv_layout,
            capacity=worker_pb2.Capacity(context_tokens=worker.context_tokens),
            can_encode=worker.identity is not None,
        )


class _Encoder(_Part, stages_pb2_grpc.EncoderServicer):
    async def Lease(self, request, context):
        worker = self.worker
        await worker.play("Lease", request, context)
        results = [
            stages_pb2.LeaseResult(
                handle=worker.lease(common.HANDLE_KIND_EMBEDDING, key, request.fingerprint, 1)
            )
            if key in worker.held
            else stages_pb2.LeaseResult(miss=True)
            for key in request.keys
        ]
        return stages_pb2.LeaseResponse(results=results)

    async def Encode(self, request_iterator, context):
        worker = self.worker
        header, received = None, 0
        async for chunk in request_iterator:
            if chunk.WhichOneof("part") == "header":
                header = chunk.header
                await worker.play("Encode", header, context)
            else:
                received += len(chunk.data)
        worker.encoded.append(header)
        worker.received += received
        await asyncio.sleep(worker.encode_seconds)
        worker.held.add(header.key)
        handle = worker.lease(
            common.HANDLE_KIND_EMBEDDING, header.key, header.fingerprint, header.visual_tokens
        )
        times = common.StageTimes(seconds={"encode": worker.encode_seconds})
        return stages_pb2.EncodeResponse(handle=handle, times=times)


class _Prefill(_Part, stages_pb2_grpc.PrefillServicer):
    async def Prefill(self, request, context):
        worker = self.worker
        await worker.play("Prefill", request, context)
        try:
            worker.take(request)
        except TriptychError as error:
            await abort_with(context, error)
        first = worker.event(0, request)
        first.times.seconds["prefill"] = 0.0
        first.times.counts["kv_prefix_tokens"] = worker.prefix_tokens
        response = stages_pb2.PrefillResponse(first=first)
        if not first.finish_reason:
            response.kv.CopyFrom(
                worker.lease(common.HANDLE_KIND_KV, bytes(32), worker.model_digest, 1)
            )
            response.state.output_token_ids.append(first.token_id)
        return response


class _Decode(_Part, stages_pb2_grpc.DecodeServicer):
    async def Decode(self, request, context):
        worker = self.worker
        await worker.play("Decode", request, context)
        try:
            worker.world.fetch(request.kv)
        except TriptychError as error:
            await abort_with(context, error)
        async for event in worker.tokens(1, request, context):
            yield event


class _Fused(_Part, stages_pb2_grpc.FusedServicer):
    async def Generate(self, request, context):
        worker = self.worker
        await worker.play("Generate", request, context)
        try:
            worker.take(request)
        except TriptychError as error:
            await abort_with(context, error)
        async for event in worker.tokens(0, request, context):
            yield event


class _Transfer(_Part, transfer_pb2_grpc.TransferServicer):
    async def Release(self, request, context):
        for lease_id in request.lease_ids:
            self.worker.leases.discard(lease_id)
            self.worker.released.append(lease_id)
        return transfer_pb2.ReleaseResponse(released=len(request.lease_ids))
