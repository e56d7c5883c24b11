"""A scripted worker: the contract's services on a real port, answering what a test tells it to."""

import asyncio
import importlib.util
import io
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import grpc
import pytest
import uvicorn
from PIL import Image as PilImage
from triptych_contract.config import Endpoints, GatewayConfig, Model
from triptych_contract.errors import FingerprintMismatch, LeaseExpired, TriptychError
from triptych_contract.fingerprints import (
    EncoderIdentity,
    encoder_fingerprint,
)
from triptych_contract.names import Tier, Topology
from triptych_contract.processor import MEDIA_DECODING, effective_processor
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


def load_tiny_models() -> ModuleType:
    path = Path(__file__).parents[1] / "triptych_worker" / "tiny_models.py"
    spec = importlib.util.spec_from_file_location("tiny_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny_models() -> ModuleType:
    return load_tiny_models()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory) -> Path:
    return load_tiny_models().build("qwen2_5_vl", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def model(model_folder) -> Model:
    return Model(source=f"file://{model_folder}", served_name="tiny")


@pytest.fixture(scope="session")
def processor(model, model_folder):
    from triptych_gateway.processors.load import load_processor

    return load_processor(model_folder, model)


@dataclass
class Stand:
    """A gateway in this process, in front of scripted workers."""

    url: str
    workers: dict[Tier, list[ScriptedWorker]]
    world: World
    gateway: object
    server: uvicorn.Server

    def one(self, tier: Tier) -> ScriptedWorker:
        return self.workers[tier][0]

    async def ready(self) -> None:
        import httpx2 as httpx

        async with httpx.AsyncClient() as client:
            for _ in range(200):
                if (await client.get(f"{self.url}/readyz")).status_code == 200:
                    return
                await asyncio.sleep(0.02)
        raise AssertionError("never ready")


class _Server(uvicorn.Server):
    def install_signal_handlers(self) -> None: ...


@pytest.fixture
def stand(model, model_folder, processor):
    """A function that builds a Stand: ``async with stand(topology, ...) as s``."""
    from triptych_gateway.server import fetcher_of, running_gateway

    identity = EncoderIdentity(
        source=model.source,
        revision=model.revision,
        weights="w",
        processor_revision=model.revision,
        processor=effective_processor(model_folder, model.processor),
        media=MEDIA_DECODING,
        engine_version="1",
    )

    @asynccontextmanager
    async def build(topology=Topology.FULL_SPLIT, counts=None, fetcher=None, **overrides):
        world = World()
        async with AsyncExitStack() as stack:
            workers = {}
            for tier in topology.tiers[:-1]:
                workers[tier] = []
                for _ in range((counts or {}).get(tier, 1)):
                    sees = tier is Tier.ENCODER or topology is Topology.FUSED
                    worker = ScriptedWorker(tier, world, identity if sees else None)
                    await worker.start()
                    stack.push_async_callback(worker.stop)
                    workers[tier].append(worker)
            for tier in overrides.pop("can_encode", ()):
                for worker in workers[tier]:
                    worker.identity = identity
            config = GatewayConfig(
                model=model,
                topology=topology,
                **{
                    str(tier): Endpoints(addresses=tuple(w.address for w in pods))
                    for tier, pods in workers.items()
                },
                **overrides,
            )
            gateway = await stack.enter_async_context(
                running_gateway(config, processor, fetcher or fetcher_of(config))
            )
            server = uvicorn.Server(
                uvicorn.Config(gateway.app, port=0, log_config=None, lifespan="off")
            )
            serving = asyncio.create_task(server._serve())
            while not server.started:
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            made = Stand(f"http://127.0.0.1:{port}", workers, world, gateway, server)
            try:
                await made.ready()
                yield made
            finally:
                server.should_exit = True
                await serving

    return build


def encoded_picture(width: int = 60, height: int = 60, kind: str = "PNG", **options) -> bytes:
    stream = io.BytesIO()
    shade = (width * 7 + height * 13) % 256
    PilImage.new("RGB", (width, height), (shade, 80, 160)).save(stream, kind, **options)
    return stream.getvalue()


@pytest.fixture
def picture():
    return encoded_picture


def _data_url(content: bytes, kind: str = "png") -> str:
    import base64

    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


@pytest.fixture
def data_url():
    return _data_url


@pytest.fixture
def ask():
    """The body of a request about some pictures."""

    def body(*parts: str, model: str = "tiny", **fields: object) -> dict[str, object]:
        content = [
            {"type": "image_url", "image_url": {"url": part}}
            if part.startswith(("data:", "http"))
            else {"type": "text", "text": part}
            for part in parts
        ]
        return {"model": model, "messages": [{"role": "user", "content": content}], **fields}

    return body


def events_of(text: str) -> list[dict[str, object]]:
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.fixture
def events():
    return events_of
