"""From the resource to what the processes read: one configuration per tier. Pure.

``triptych up`` writes it to files, the operator to a ConfigMap, so that both run the same service.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from pydantic import JsonValue
from triptych_contract import config
from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Tier

from triptych_operator.api.model import EncoderModel, ModelSpec, ProcessorSpec
from triptych_operator.api.quantities import parse_bytes
from triptych_operator.api.scalars import parse_seconds
from triptych_operator.api.service import MultimodalService, ServiceSpec
from triptych_operator.api.tiers import EncodeLimits, EncoderTier, LanguageLimits, PrefillTier

CLAIM_SCHEME: Final = "pvc://"
_REVISION_DIGITS: Final = 16
# Where pods mount the claims that hold models.
MODELS_FOLDER: Final = PurePosixPath("/var/lib/triptych/models")


def worker_config(
    service: MultimodalService,
    tier: Tier,
    *,
    image: str = "",
    listen: config.Listen | None = None,
    threads: int = 0,
) -> config.WorkerConfig:
    """What ``triptych-worker TIER`` needs to serve its part of ``service``, and nothing else, so
    that a change of other parts does not touch it.

    Args:
        image: that the pods run, where they run one.

    Raises:
        InvalidRequest: ``tier`` runs no worker in this topology.
    """
    spec = service.spec
    if tier is Tier.GATEWAY or tier not in spec.topology.tiers:
        raise InvalidRequest(f"topology {spec.topology} runs no {tier} workers")
    return config.WorkerConfig(
        model=_worker_model(spec, tier),
        listen=listen or config.Listen(),
        encode=_encode_limits(spec, tier),
        language=_language_limits(spec, tier),
        transfer=config.Transfer(
            transport=spec.transfer.transport,
            lease_seconds=parse_seconds(spec.transfer.lease),
            timeout_seconds=parse_seconds(spec.transfer.timeout),
            landing_bytes=parse_bytes(spec.transfer.landing),
        ),
        can_encode=_can_encode(spec, tier),
        revisions=_worker_revisions(spec, tier, image),
        drain_seconds=parse_seconds(spec.tier(tier).drain.timeout),
        threads=threads,
    )


def gateway_config(
    service: MultimodalService,
    endpoints: Mapping[Tier, config.Endpoints],
    *,
    image: str = "",
    listen: config.Listen | None = None,
) -> config.GatewayConfig:
    """What ``triptych-gateway`` needs to serve ``service`` over the workers at ``endpoints``."""
    spec = service.spec
    tier = spec.gateway
    nowhere = config.Endpoints()
    return config.GatewayConfig(
        model=_model(spec.model, "cpu"),
        topology=spec.topology,
        encoder=endpoints.get(Tier.ENCODER, nowhere),
        prefill=endpoints.get(Tier.PREFILL, nowhere),
        decode=endpoints.get(Tier.DECODE, nowhere),
        fused=endpoints.get(Tier.FUSED, nowhere),
        listen=listen or config.Listen(),
        media=_media(spec),
        max_body_bytes=parse_bytes(tier.limits.max_body),
        max_concurrent=tier.limits.max_concurrent,
        request_seconds=parse_seconds(tier.limits.request_timeout),
        processor_cache_bytes=parse_bytes(tier.cache.capacity),
        on_encoder_loss=spec.degraded.on_encoder_loss,
        queue_seconds=parse_seconds(spec.degraded.queue_timeout),
        encoder_rests=spec.encoder_rests,
        revisions=revisions(spec, image),
        drain_seconds=parse_seconds(tier.drain.timeout),
    )


def source_in_process(source: str) -> str:
    """The source as a process sees it: a claim is a folder there."""
    if not source.startswith(CLAIM_SCHEME):
        return source
    return f"file://{MODELS_FOLDER / source.removeprefix(CLAIM_SCHEME)}"


def revisions(spec: ServiceSpec, image: str) -> config.Revisions:
    """Which version of the service ``spec`` describes, for each kind of worker."""
    language = {
        "engine": spec.engine.name,
        "image": image,
        "source": spec.model.source,
        "revision": spec.model.revision,
        "dtype": spec.model.dtype,
    }
    model = _model(spec.model, "cpu")
    encoder = {
        **language,
        "encoder": model.encoder.model_dump(mode="json") if model.encoder else None,
        "processor": model.processor.model_dump(mode="json"),
    }
    return config.Revisions(language=_digest(language), encoder=_digest(encoder))


def _digest(parts: Mapping[str, JsonValue]) -> str:
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_REVISION_DIGITS]


def _worker_revisions(spec: ServiceSpec, tier: Tier, image: str) -> config.Revisions:
    whole = revisions(spec, image)
    return config.Revisions(
        language="" if tier is Tier.ENCODER else whole.language,
        encoder=whole.encoder if encodes(spec, tier) else "",
    )


def _worker_model(spec: ServiceSpec, tier: Tier) -> config.Model:
    """The model as the tier loads it: without the parts that it does not run."""
    model = _model(spec.model, spec.tier(tier).device)
    unused: dict[str, object] = {"served_name": config.Model.model_fields["served_name"].default}
    if not encodes(spec, tier):
        unused |= {"encoder": None, "processor": config.Processor()}
    return model.model_copy(update=unused)


def _model(model: ModelSpec, device: str) -> config.Model:
    return config.Model(
        source=source_in_process(model.source),
        revision=model.revision,
        served_name=model.served_name,
        dtype=model.dtype,
        device=device,
        encoder=_encoder(model.encoder),
        processor=_processor(model.processor),
    )


def _encoder(encoder: EncoderModel | None) -> config.Source | None:
    if encoder is None:
        return None
    return config.Source(source=source_in_process(encoder.source), revision=encoder.revision)


def _processor(processor: ProcessorSpec) -> config.Processor:
    return config.Processor(
        revision=processor.revision,
        min_pixels=processor.min_pixels,
        max_pixels=processor.max_pixels,
        parameters=processor.parameters,
    )


def _encode_limits(spec: ServiceSpec, tier: Tier) -> config.EncodeLimits:
    """The encoder's own limits, or those of a fused tier; a prefill that stands in for lost
    encoders has the defaults within its own cache, and a decode the defaults."""
    if tier is Tier.ENCODER:
        limits, capacity = spec.encoder.limits, spec.encoder.cache.capacity
    elif tier is Tier.FUSED:
        limits, capacity = spec.fused.encode, spec.fused.cache.capacity
    else:
        stands_in = spec.prefill if tier is Tier.PREFILL else EncoderTier()
        limits, capacity = EncodeLimits(), stands_in.cache.capacity
    return config.EncodeLimits(
        batch_visual_tokens=limits.batch_visual_tokens,
        queue_visual_tokens=limits.queue_visual_tokens,
        cache_bytes=parse_bytes(capacity),
        inflight_bytes=parse_bytes(limits.inflight),
    )


def _language_limits(spec: ServiceSpec, tier: Tier) -> config.LanguageLimits:
    """The tier's own limits, and caches of prompts; the defaults where there are none."""
    prompts = spec.fused if tier is Tier.FUSED else spec.prefill
    if tier not in (Tier.PREFILL, Tier.FUSED):
        prompts = PrefillTier()
    limits = {
        Tier.PREFILL: spec.prefill.limits,
        Tier.DECODE: spec.decode.limits,
        Tier.FUSED: spec.fused.limits,
    }.get(tier, LanguageLimits())
    return config.LanguageLimits(
        kv_tokens=limits.kv_tokens,
        max_running=limits.max_running,
        queue_tokens=limits.queue_tokens,
        chunk_tokens=limits.chunk_tokens,
        embedding_cache_bytes=parse_bytes(prompts.cache.capacity),
        prefix_cache_bytes=parse_bytes(prompts.prefix_cache.capacity),
        outbox_bytes=parse_bytes(limits.outbox),
    )


def encodes(spec: ServiceSpec, tier: Tier) -> bool:
    """Whether pods of ``tier`` load the vision part."""
    return tier is Tier.ENCODER or _can_encode(spec, tier)


def _can_encode(spec: ServiceSpec, tier: Tier) -> bool:
    """Whether a tier that runs language loads the vision part too.

    A fused tier always does: it has the same pods in both topologies that have one, so that moving
    between them rolls none of them and loses no encoder.
    """
    if tier is Tier.PREFILL:
        return spec.degraded.on_encoder_loss == "EncodeInline"
    return tier is Tier.FUSED


def _media(spec: ServiceSpec) -> config.MediaLimits:
    budget, decode, urls = spec.media.budgets.default, spec.media.decode, spec.media.url_policy
    return config.MediaLimits(
        max_items=budget.max_items,
        max_bytes=parse_bytes(budget.max_bytes),
        max_pixels=budget.max_pixels,
        inflight_bytes=parse_bytes(decode.inflight),
        fetch_seconds=parse_seconds(urls.fetch_timeout),
        decode_seconds=parse_seconds(decode.timeout),
        decode_processes=decode.processes,
        allow_networks=urls.allow_networks,
        tenant_header=spec.media.tenants.header,
        uuid_bytes=parse_bytes(spec.media.uuids.capacity),
    )
