"""The two ends of a transfer: holders in other processes or this one, and a receiver."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from triptych_contract.config import Transfer
from triptych_worker.domain import Handle, HandleKind
from triptych_worker.transfer.service import TransferService

MIB = 1024 * 1024
FINGERPRINT = "f1" * 32


class Holder:
    """The other process."""

    def __init__(self, config: Transfer, holding_bytes: int) -> None:
        script = Path(__file__).with_name("holder.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), config.model_dump_json(), str(holding_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, do: str, **arguments: object) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def publish(
        self,
        shape: tuple[int, ...],
        dtype: str = "float32",
        *,
        seed: int = 1,
        kind: HandleKind = HandleKind.EMBEDDING,
        key: bytes = b"k" * 32,
    ) -> Handle:
        told = self.ask(
            "publish",
            kind=kind,
            key=key.hex(),
            fingerprint=FINGERPRINT,
            shape=shape,
            dtype=dtype,
            seed=seed,
        )
        told["kind"] = HandleKind(told["kind"])
        for name in ("shape", "transports"):
            told[name] = tuple(told[name])
        for name in ("key", "checksum"):
            told[name] = bytes.fromhex(told[name])
        return Handle(**told)

    def end(self) -> None:
        """Kills it, if it still lives."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


class Bytes:
    """An observer that adds up what moves, by transport and direction."""

    def __init__(self) -> None:
        self.moved: Counter[tuple[str, str]] = Counter()

    def seconds(self, stage: str, value: float) -> None: ...

    def add(self, metric: str, amount: float = 1.0, **labels: str) -> None:
        self.moved[labels["transport"], labels["direction"]] += int(amount)

    def time_per_output_token(self, value: float) -> None: ...


StartService = Callable[..., AbstractAsyncContextManager[TransferService]]


@pytest.fixture(scope="session", params=["grpc", "nixl"])
def transport(request: pytest.FixtureRequest) -> str:
    if request.param == "nixl" and importlib.util.find_spec("nixl") is None:
        pytest.skip("nixl is not installed")
    return str(request.param)


@pytest.fixture
def observer() -> Bytes:
    return Bytes()


@pytest.fixture(scope="session")
def start_holder() -> Iterator[Callable[..., Holder]]:
    """Starts holding processes, which end with the tests."""
    holders: list[Holder] = []

    def start(transport: str, holding: int = 64 * MIB, **config: Any) -> Holder:
        holders.append(Holder(Transfer(transport=transport, **config), holding))
        return holders[-1]

    yield start
    for holder in holders:
        holder.end()


@pytest.fixture
def holding(observer: Bytes) -> StartService:
    """A service that holds tensors and serves them on a port."""

    @asynccontextmanager
    async def start(transport: str, **config: Any) -> AsyncIterator[TransferService]:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        service = TransferService(
            Transfer(transport=transport, **config),
            observer,
            instance=f"holder-{uuid.uuid4().hex}",
            source=f"127.0.0.1:{port}",
            holding_bytes=64 * MIB,
            landing_bytes=0,
        )
        service.add_to(server)
        await server.start()
        await service.start()
        try:
            yield service
        finally:
            await service.stop()
            await server.stop(None)
            service.store.check_integrity()

    return start


@pytest.fixture
def receiver(observer: Bytes) -> StartService:
    """A service that receives tensors."""

    @asynccontextmanager
    async def start(
        transport: str, landing: int = 64 * MIB, **config: Any
    ) -> AsyncIterator[TransferService]:
        service = TransferService(
            Transfer(transport=transport, landing_bytes=landing, **config),
            observer,
            instance=f"receiver-{uuid.uuid4().hex}",
            source="127.0.0.1:1",
            holding_bytes=MIB,
        )
        await service.start()
        try:
            yield service
        finally:
            await service.stop()

    return start
