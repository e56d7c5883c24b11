"""An encode stage over a real tensor store, with a vision part that does as it is told."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from triptych_contract.config import EncodeLimits
from triptych_contract.names import Metric, Stage
from triptych_worker.cores import Cores
from triptych_worker.domain import Encoded, EncodeInput, Handle, Load
from triptych_worker.stages.encode import PictureEncoder
from triptych_worker.transfer.arena import Arena
from triptych_worker.transfer.store import Origin, TensorStore

OURS, OTHER = "a" * 64, "b" * 64
WIDTH = 8
DEADLINE = 20.0


class ValueModel:
    """Every row of an embedding is the picture's first pixel; a gate holds batches back."""

    width = WIDTH
    dtype = torch.float32
    weights_digest = "0" * 64

    def __init__(self, pass_tokens: int = 100) -> None:
        self.pass_tokens = pass_tokens
        self.batches: list[list[float]] = []
        self.threads: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def encode(self, items: Sequence[EncodeInput]) -> list[torch.Tensor]:
        self.entered.set()
        assert self.gate.wait(DEADLINE)
        values = [float(item.tensors["pixel_values"][0]) for item in items]
        self.batches.append(values)
        self.threads.add(threading.current_thread().name)
        if 666.0 in values:
            raise RuntimeError("this picture breaks the batch")
        return [
            torch.full((item.visual_tokens + (value == 13.0), WIDTH), value)
            for item, value in zip(items, values, strict=True)
        ]


@dataclass
class Recorder:
    durations: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    busy: float = 0.0

    def seconds(self, stage: Stage, value: float) -> None:
        assert value >= 0
        self.durations[stage] += 1

    def add(self, metric: str, amount: float = 1.0, **labels: str) -> None:
        if metric == Metric.BUSY_SECONDS:
            assert labels == {"stage": Stage.ENCODE}
            self.busy += amount
        else:
            self.totals[metric] += int(amount)

    def time_per_output_token(self, value: float) -> None:
        raise AssertionError("an encoder makes no tokens")


@dataclass
class Bench:
    """A stage with all that it works on."""

    model: ValueModel
    store: TensorStore
    observer: Recorder
    stage: PictureEncoder
    cores: Cores

    def close(self) -> None:
        self.stage.close()
        self.cores.close()

    async def value(self, encoded: Encoded | Handle) -> float:
        handle = encoded.handle if isinstance(encoded, Encoded) else encoded
        with self.store.reading(handle.lease_id, handle.key, handle.fingerprint) as tensor:
            content = self.store.arena.tensor(tensor.start, tensor.shape, tensor.dtype)
            assert content.shape[1] == WIDTH
            return float(content.unique().item())

    async def busy(self) -> None:
        """Until the model has something in hand."""
        assert await asyncio.to_thread(self.model.entered.wait, DEADLINE)

    async def idle(self) -> None:
        """Until nothing waits and nothing runs."""
        async with asyncio.timeout(DEADLINE):
            while self.stage.load() != Load():  # noqa: ASYNC110 - the stage tells nobody
                await asyncio.sleep(0.001)


def bench_of(cache_bytes: int = 1 << 20, **limits: int) -> Bench:
    model = ValueModel(limits.pop("pass_tokens", 100))
    origin = Origin("127.0.0.1:1", "instance", ("grpc",))
    bounds = EncodeLimits(cache_bytes=cache_bytes, **limits)
    store = TensorStore(
        Arena(bounds.holding_bytes), origin, lease_seconds=30.0, keeps_embeddings=cache_bytes > 0
    )
    observer, cores = Recorder(), Cores()
    stage = PictureEncoder(model, store, OURS, bounds, observer, cores=cores)
    return Bench(model, store, observer, stage, cores)


def picture(value: float, tokens: int = 4, key: str = "") -> EncodeInput:
    name = (key or str(value)).encode().ljust(32, b"\0")
    return EncodeInput(name, {"pixel_values": torch.full((2,), value)}, (1, 2, 2), tokens)
