"""Real gRPC services in front of stages that do exactly what a test asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import pytest
import torch
from triptych_contract.config import EncodeLimits, Listen, Model, Revisions, Transfer, WorkerConfig
from triptych_contract.errors import (
    TriptychError,
)
from triptych_contract.fingerprints import EncoderIdentity, encoder_fingerprint
from triptych_contract.names import Tier
from triptych_contract.rpc import error_from_rpc
from triptych_contract.v1 import (
    common_pb2,
    stages_pb2,
    stages_pb2_grpc,
)
from triptych_worker.domain import (
    CacheStats,
    Capacity,
    Encoded,
    EncodeInput,
    GenerateInput,
    Handle,
    HandleKind,
    Holding,
    Load,
    StageTimes,
    TokenEvent,
)
from triptych_worker.serving.admission import Admission
from triptych_worker.serving.boundary import Boundary
from triptych_worker.serving.health import Health
from triptych_worker.serving.listener import Listener
from triptych_worker.serving.metrics import Metrics
from triptych_worker.serving.registrations import registrations
from triptych_worker.serving.tier import LoadedTier, Stages
from triptych_worker.serving.worker import Worker
from triptych_worker.transfer.service import TransferService

IDENTITY = EncoderIdentity("test", "1", "00" * 32, "1")
FINGERPRINT = encoder_fingerprint(IDENTITY)
MODEL = "cd" * 32
KEY = b"k" * 32
INFLIGHT = 1024


def lease(key: bytes = KEY) -> Handle:
    return Handle(
        HandleKind.EMBEDDING, "lease", "127.0.0.1:1", "me", key, FINGERPRINT, (4, 8), "float32",
        128, b"c" * 16, 30.0, ("grpc",),
    )  # fmt: skip


@dataclass
class ScriptedEncode:
    """Answers with a lease, or fails as told."""

    error: Exception | None = None
    held: set[bytes] = field(default_factory=set)
    seen: list[EncodeInput] = field(default_factory=list)
    asked: list[tuple[bool, str]] = field(default_factory=list)

    async def lease(
        self, keys: Sequence[bytes], fingerprint: str, *, verify: bool = False, peer: str = ""
    ) -> list[Handle | None]:
        self.asked.append((verify, peer))
        return [lease(key) if key in self.held else None for key in keys]

    async def encode(self, item: EncodeInput, fingerprint: str) -> Encoded:
        if self.error:
            raise self.error
        self.seen.append(item)
        return Encoded(lease(item.key), StageTimes({"encode": 0.5}), cached=False)


@dataclass
class EndlessFused:
    """Streams tokens until somebody closes the stream."""

    pause: float = 0.0
    text: str = "x"
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    last: int | None = None

    async def generate(self, request: GenerateInput) -> AsyncGenerator[TokenEvent, None]:
        try:
            token = 0
            while token != self.last:
                yield TokenEvent(token, self.text)
                token += 1
                await asyncio.sleep(self.pause)
        finally:
            self.closed.set()


class OneFingerprintCache:
    """Holds one entry of another fingerprint until it is told to drop it."""

    def __init__(self) -> None:
        self.held = [Holding("encoder", "ee" * 32, 1, 100, 0)]

    def holdings(self) -> Sequence[Holding]:
        return self.held

    def drop_others(self, keep: str) -> tuple[int, int]:
        dropped, self.held = self.held, []
        return len(dropped), sum(one.bytes for one in dropped)

    def stats(self) -> CacheStats:
        return CacheStats("encoder", 0, 0, 0, 0, 0, 0.0)


@dataclass
class Served:
    worker: Worker
    health: Health
    channel: grpc.aio.Channel
    address: str
    cache: OneFingerprintCache

    @property
    def encoder(self) -> stages_pb2_grpc.EncoderAsyncStub:
        return stages_pb2_grpc.EncoderStub(self.channel)

    @property
    def fused(self) -> stages_pb2_grpc.FusedAsyncStub:
        return stages_pb2_grpc.FusedStub(self.channel)


@asynccontextmanager
async def serving(
    encode: ScriptedEncode | None = None,
    fused: EndlessFused | None = None,
    *,
    loaded: bool = True,
    peer_seconds: float = 60.0,  # a machine that others use may hold a peer up for some
) -> AsyncIterator[Served]:
    config = WorkerConfig(
        model=Model(source="test"),
        listen=Listen(host="127.0.0.1", grpc_port=0),
        encode=EncodeLimits(inflight_bytes=INFLIGHT),
        transfer=Transfer(transport="grpc", timeout_seconds=peer_seconds),
    )
    admission, metrics = Admission(), Metrics()
    listener = Listener(config.listen, Boundary(admission, metrics, peer_seconds))
    transfer = TransferService(
        config.transfer,
        metrics,
        instance="instance-1",
        source=listener.address,
        holding_bytes=1024,
        landing_bytes=1024,
    )
    worker = Worker(
        Tier.FUSED,
        "instance-1",
        admission,
        transfer.transports,
        Revisions(language="7", encoder="8"),
    )
    cache = OneFingerprintCache()
    health = await listener.start(registrations(config, worker, transfer))
    if loaded:
        stages = Stages(encode=encode, fused=fused)
        worker.serve(
            LoadedTier(
                stages,
                Capacity(),
                Load,
                [cache],
                lambda: None,
                encoder_identity=IDENTITY,
                model_digest=MODEL,
            )
        )
    try:
        async with grpc.aio.insecure_channel(listener.address) as channel:
            yield Served(worker, health, channel, listener.address, cache)
    finally:
        await listener.stop(0)
        await transfer.stop()


def header(**changes: object) -> stages_pb2.EncodeChunk:
    fields: dict[str, object] = {
        "request_id": "request-1",
        "fingerprint": FINGERPRINT,
        "key": KEY,
        "tensors": [
            stages_pb2.NamedTensor(
                name=name, tensor=common_pb2.TensorSpec(shape=shape, dtype=dtype)
            )
            for name, shape, dtype in (
                ("pixel_values", [4, 3], "float32"),
                ("mask", [3], "uint8"),
            )
        ],
        "grid": [1, 2, 2],
        "visual_tokens": 1,
    }
    return stages_pb2.EncodeChunk(header=stages_pb2.EncodeHeader(**(fields | changes)))


def data(content: bytes) -> stages_pb2.EncodeChunk:
    return stages_pb2.EncodeChunk(data=content)


PIXELS = torch.arange(12, dtype=torch.float32)
CONTENT = PIXELS.numpy().tobytes() + b"\1\0\1"


def question() -> stages_pb2.GenerateRequest:
    return stages_pb2.GenerateRequest(
        request_id="request-1",
        model_digest=MODEL,
        prompt=common_pb2.Prompt(token_ids=[1, 2, 3]),
        sampling=common_pb2.Sampling(top_p=1, max_tokens=5),
    )


async def error_of(call: Callable[[], object]) -> TriptychError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call()  # type: ignore[misc]
    return error_from_rpc(caught.value)
