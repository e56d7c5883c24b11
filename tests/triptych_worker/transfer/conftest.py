"""Two ends of a transfer: a holder in another process, a receiver in this one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

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


StartHolder = Callable[..., Holder]
StartReceiver = Callable[..., AbstractAsyncContextManager[TransferService]]


@pytest.fixture
def observer() -> Bytes:
    return Bytes()


@pytest.fixture
def start_holder() -> Iterator[StartHolder]:
    holders: list[Holder] = []

    def start(transport: str = "grpc", holding: int = 64 * MIB, **config: object) -> Holder:
        holders.append(Holder(Transfer(transport=transport, **config), holding))
        return holders[-1]

    yield start
    for holder in holders:
        holder.end()


@pytest.fixture
def receiver(observer: Bytes) -> StartReceiver:
    @asynccontextmanager
    async def start(
        transport: str = "grpc", landing: int = 64 * MIB, **config: object
    ) -> AsyncIterator[TransferService]:
        service = TransferService(
            Transfer(transport=transport, landing_bytes=landing, **config),
            observer,
            instance=f"receiver-{transport}",
            source="127.0.0.1:1",
            holding_bytes=MIB,
        )
        await service.start()
        try:
            yield service
        finally:
            await service.stop()
            service.store.check_integrity()

    return start
