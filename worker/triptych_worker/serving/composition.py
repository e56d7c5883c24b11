"""Puts the stages of a tier together, around one transfer service and one language engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from triptych_contract.config import WorkerConfig
from triptych_contract.fingerprints import encoder_fingerprint
from triptych_contract.names import Tier

from triptych_worker.cores import Cores
from triptych_worker.domain import Capacity, Load, Observer
from triptych_worker.language.engine import Engine
from triptych_worker.language.prefix_cache import PrefixCache
from triptych_worker.language.scheduler import Limits
from triptych_worker.serving.loading import Language, Models, Vision, encodes
from triptych_worker.serving.peer_leases import GrpcPeerLeases
from triptych_worker.serving.tier import FingerprintedCache, LoadedTier, Stages
from triptych_worker.stages.decode import Decoder
from triptych_worker.stages.embeddings import EmbeddingCache, EmbeddingReader
from triptych_worker.stages.encode import PictureEncoder
from triptych_worker.stages.fused import Fused
from triptych_worker.stages.intake import Intake
from triptych_worker.stages.peer_embeddings import PeerEmbeddings
from triptych_worker.stages.prefill import Prefiller
from triptych_worker.transfer.service import TransferService


def holding_bytes(tier: Tier, config: WorkerConfig) -> int:
    """Bound on the tensors that peers may fetch from this process."""
    embeddings = config.encode.holding_bytes if encodes(tier, config) else 0
    return embeddings + (config.language.outbox_bytes if tier is Tier.PREFILL else 0)


def landing_bytes(tier: Tier, config: WorkerConfig) -> int:
    """Bound on the tensors that arrive from peers and are not yet used."""
    if tier is Tier.ENCODER:  # what arrives goes into the cache, and is a part of it
        return min(config.transfer.landing_bytes, config.encode.holding_bytes // 4)
    return config.transfer.landing_bytes


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a tier is put into."""

    tier: Tier
    config: WorkerConfig
    instance: str
    transfer: TransferService
    observer: Observer
    cores: Cores


def compose(models: Models, around: Surroundings) -> LoadedTier:
    """The tier, ready to work. Called on the event loop, and starts the engine's thread."""
    encoder = _encoder(models.vision, around) if models.vision else None
    engine = _engine(models.language, around) if models.language else None
    generating, kept = Stages(), tuple[FingerprintedCache, ...]()
    if engine is not None and models.language is not None:
        generating, kept = _generating(engine, models, around)
    return LoadedTier(
        stages=Stages(encoder, generating.prefill, generating.decode, generating.fused),
        capacity=_capacity(models, around),
        load=_load(encoder, engine, around.transfer),
        caches=(around.transfer.store, *kept) if models.vision else kept,
        close=_closing(encoder, engine, around.cores),
        encoder_identity=models.vision.identity if models.vision else None,
        model_digest=models.language.digest if models.language else "",
        kv_layout=models.language.model.layout.describe() if models.language else "",
    )


def _encoder(vision: Vision, around: Surroundings) -> PictureEncoder:
    fingerprint, transfer = encoder_fingerprint(vision.identity), around.transfer
    peers = PeerEmbeddings(
        GrpcPeerLeases(transfer.channels),
        transfer.source,
        transfer.store,
        fingerprint=fingerprint,
        width=vision.model.width,
    )
    return PictureEncoder(
        vision.model,
        transfer.store,
        fingerprint,
        around.config.encode,
        around.observer,
        peers=peers if around.tier is Tier.ENCODER and around.config.encode.cache_bytes else None,
        cores=around.cores,
    )


def _engine(language: Language, around: Surroundings) -> Engine:
    bounds = around.config.language
    limits = Limits(
        context_tokens=language.model.context_tokens,
        kv_tokens=bounds.kv_tokens,
        max_running=bounds.max_running,
        queue_tokens=bounds.queue_tokens,
        chunk_tokens=bounds.chunk_tokens,
    )
    engine = Engine(
        language.model,
        language.vocabulary,
        language.pool,
        limits,
        around.observer,
        cores=around.cores,
        pace_seconds=around.config.pace_seconds,
    )
    engine.start()
    return engine


def _generating(
    engine: Engine, models: Models, around: Surroundings
) -> tuple[Stages, tuple[FingerprintedCache, ...]]:
    """The one stage of the tier that runs the language model, and what it keeps."""
    transfer, observer, bounds = around.transfer, around.observer, around.config.language
    digest = models.language.digest if models.language else ""
    if around.tier is Tier.DECODE:
        return Stages(decode=Decoder(engine, transfer.source, digest, observer)), ()
    embeddings = EmbeddingCache(bounds.embedding_cache_bytes)
    prefixes = PrefixCache(engine.model.layout, bounds.prefix_cache_bytes)
    reader = EmbeddingReader(transfer.source, embeddings, around.instance, engine.model.row_width)
    # Who encodes itself takes only what it would have made; others trust the request.
    own = encoder_fingerprint(models.vision.identity) if models.vision else ""
    intake = Intake(engine, reader, prefixes, own, observer)
    if around.tier is Tier.FUSED:
        return Stages(fused=Fused(intake, observer)), (embeddings, prefixes)
    prefill = Prefiller(intake, engine, transfer.store, transfer.source, digest)
    return Stages(prefill=prefill), (embeddings, prefixes)


def _capacity(models: Models, around: Surroundings) -> Capacity:
    config, language = around.config, models.language
    return Capacity(
        context_tokens=language.model.context_tokens if language else 0,
        kv_tokens=config.language.kv_tokens if language else 0,
        embedding_cache_bytes=config.encode.cache_bytes if models.vision else 0,
        max_running=config.language.max_running if language else 0,
        max_batch_visual_tokens=config.encode.batch_visual_tokens if models.vision else 0,
    )


def _load(
    encoder: PictureEncoder | None, engine: Engine | None, transfer: TransferService
) -> Callable[[], Load]:
    def load() -> Load:
        pictures = encoder.load() if encoder else Load()
        language = engine.load() if engine else Load()
        return Load(
            running=pictures.running + language.running,
            waiting=pictures.waiting + language.waiting,
            backlog_tokens=pictures.backlog_tokens + language.backlog_tokens,
            kv_tokens_used=language.kv_tokens_used,
            leases=transfer.store.leases,
        )

    return load


def _closing(
    encoder: PictureEncoder | None, engine: Engine | None, cores: Cores
) -> Callable[[], None]:
    def close() -> None:
        if encoder:
            encoder.close()
        if engine:
            engine.stop()
        cores.close()

    return close
