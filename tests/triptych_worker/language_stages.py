"""The language stages of one worker over a tiny model, with tensors in this process's memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from memory_tensors import MemoryTensors
from references import FINGERPRINT, Picture
from triptych_contract.fingerprints import NO_TENANT
from triptych_contract.names import Stage
from triptych_worker.cores import Cores
from triptych_worker.domain import (
    DecodeInput,
    GenerateInput,
    Handle,
    HandleKind,
    Load,
    Prompt,
    Sampling,
    TokenEvent,
)
from triptych_worker.language.engine import Engine
from triptych_worker.language.model import LanguageModel
from triptych_worker.language.pool import KvPool
from triptych_worker.language.prefix_cache import PrefixCache
from triptych_worker.language.scheduler import Limits
from triptych_worker.language.vocabulary import Vocabulary
from triptych_worker.stages.decode import Decoder
from triptych_worker.stages.embeddings import EmbeddingCache, EmbeddingReader
from triptych_worker.stages.fused import Fused
from triptych_worker.stages.intake import Intake
from triptych_worker.stages.prefill import Prefiller
from triptych_worker.weights import Part, open_folder

KV_FINGERPRINT = "cd" * 32


@dataclass
class Observed:
    """Implements ``domain.Observer`` by remembering."""

    durations: list[tuple[Stage, float]] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)
    gaps: list[float] = field(default_factory=list)

    def seconds(self, stage: Stage, value: float) -> None:
        self.durations.append((stage, value))

    def add(self, metric: str, amount: float = 1.0, **labels: str) -> None:
        self.counters[metric] = self.counters.get(metric, 0.0) + amount

    def time_per_output_token(self, value: float) -> None:
        self.gaps.append(value)


@dataclass(frozen=True)
class Stages:
    """Everything of one worker, and the memory around it."""

    engine: Engine
    fused: Fused
    prefill: Prefiller
    decode: Decoder
    tensors: MemoryTensors
    embeddings: EmbeddingCache
    prefixes: PrefixCache
    observed: Observed

    def publish(self, picture: Picture, fingerprint: str = FINGERPRINT) -> Handle:
        """A lease on a picture's embedding, as an encoder would give it."""
        return self.tensors.publish(HandleKind.EMBEDDING, picture.key, fingerprint, picture.rows)

    async def generate(self, request: GenerateInput) -> list[TokenEvent]:
        """The answer of the fused stage."""
        return [event async for event in self.fused.generate(request)]

    async def generate_split(self, request: GenerateInput) -> list[TokenEvent]:
        """The answer of prefill, then decode."""
        prefilled = await self.prefill.prefill(request)
        if prefilled.kv is None:
            return [prefilled.first]
        rest = DecodeInput("test", prefilled.kv, prefilled.state, request.sampling)
        return [prefilled.first, *[event async for event in self.decode.decode(rest)]]


@asynccontextmanager
async def language_stages(
    folder: Path,
    *,
    kv_tokens: int = 4000,
    chunk_tokens: int = 24,
    queue_tokens: int = 100_000,
    max_running: int = 64,
    cache_bytes: int = 1_000_000,
    prefix_bytes: int = 0,
    own_fingerprint: str = FINGERPRINT,
    change: Callable[[LanguageModel], None] = lambda model: None,
    make_cores: Callable[[], Cores] = Cores,
    pace_seconds: float = 0.0,
) -> AsyncIterator[Stages]:
    """Stages on the tiny model in ``folder``; at the end nothing may be left anywhere."""
    model = LanguageModel(open_folder(folder, Part.LANGUAGE), torch.float32, torch.device("cpu"))
    change(model)
    limits = Limits(model.context_tokens, kv_tokens, max_running, queue_tokens, chunk_tokens)
    pool = KvPool(model.layout, kv_tokens, model.device)
    tensors, observed = MemoryTensors(), Observed()
    cores = make_cores()
    engine = Engine(
        model,
        Vocabulary.load(folder),
        pool,
        limits,
        observed,
        cores=cores,
        pace_seconds=pace_seconds,
    )
    engine.start()
    cache = EmbeddingCache(cache_bytes)
    reader = EmbeddingReader(tensors, cache, "worker", model.row_width)
    prefixes = PrefixCache(model.layout, prefix_bytes)
    intake = Intake(engine, reader, prefixes, own_fingerprint, observed)
    try:
        yield Stages(
            engine,
            Fused(intake, observed),
            Prefiller(intake, engine, tensors, tensors, KV_FINGERPRINT),
            Decoder(engine, tensors, KV_FINGERPRINT, observed),
            tensors,
            cache,
            prefixes,
            observed,
        )
        async with asyncio.timeout(10):
            while engine.load() != Load():  # noqa: ASYNC110 - the engine tells nobody
                await asyncio.sleep(0.001)
        prefixes.check_integrity()
    finally:
        engine.stop()
        cores.close()


def text(length: int, **sampling: object) -> GenerateInput:
    """A request without pictures."""
    token_ids = tuple(10 + index % 200 for index in range(length))
    return GenerateInput("test", "", Prompt(token_ids), Sampling(**sampling), NO_TENANT)  # type: ignore[arg-type] # by name


async def until_running(stages: Stages) -> None:
    """Until a sequence has its range."""
    async with asyncio.timeout(10):
        while not stages.engine.load().running:  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(0.001)


def ids(events: list[TokenEvent]) -> list[int]:
    """Token ids of an answer."""
    return [event.token_id for event in events]
