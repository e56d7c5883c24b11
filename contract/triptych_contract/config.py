"""Runtime configuration of the processes: written by the operator or ``triptych up``, read by the
worker and the gateway from the JSON file that ``TRIPTYCH_CONFIG`` names.

Sizes are bytes, times seconds. Unknown fields are refused, so a misspelt one is never ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Port, Topology

MIB = 1024 * 1024


class Config(BaseModel):
    """Base of every section: frozen and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a JSON file.

        Raises:
            InvalidRequest: the file is missing or does not match; the message names the field.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise InvalidRequest(f"cannot read configuration {path}: {error.strerror}") from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "top level"
            raise InvalidRequest(f"configuration {path}: {where}: {first['msg']}") from error


class Source(Config):
    """Where a model's files come from: ``builtin://NAME``, ``hf://ORG/NAME`` or ``file:///DIR``."""

    source: str
    revision: str = "1"


class Processor(Config):
    """Overrides of the processor that stands in the model folder."""

    revision: str = ""
    min_pixels: int | None = Field(default=None, gt=0)
    max_pixels: int | None = Field(default=None, gt=0)
    parameters: dict[str, str | int | float | bool | None] = Field(default_factory=dict)


class Model(Source):
    """What is served."""

    served_name: str = "model"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = "cpu"  # "cpu", "cuda", "cuda:1"
    encoder: Source | None = None  # an encoder that moves apart from the language model
    processor: Processor = Processor()


class Listen(Config):
    """Where a process serves; port 0 takes a free one."""

    host: str = "0.0.0.0"
    grpc_port: int = Port.GRPC
    metrics_port: int = Port.METRICS
    http_port: int = Port.HTTP
    advertise: str = ""  # address peers reach this process at; empty: POD_IP, else loopback


class EncodeLimits(Config):
    """Bounds of the encode stage."""

    batch_visual_tokens: int = Field(default=16384, gt=0)  # one forward pass
    queue_visual_tokens: int = Field(default=131072, gt=0)  # waiting; more is Overloaded
    # Leased and cached embeddings together; 0 keeps none, and those that are leased then have as
    # much room as the pixels that they are made of.
    cache_bytes: int = Field(default=1024 * MIB, ge=0)
    inflight_bytes: int = Field(default=1024 * MIB, gt=0)  # pixels received and not yet encoded

    @property
    def holding_bytes(self) -> int:
        """Room for embeddings, leased ones included."""
        return self.cache_bytes or self.inflight_bytes


class LanguageLimits(Config):
    """Bounds of the prefill and decode stages."""

    kv_tokens: int = Field(default=32768, gt=0)  # preallocated
    max_running: int = Field(default=64, gt=0)  # sequences in one step
    queue_tokens: int = Field(default=131072, gt=0)  # prompt tokens waiting; more is Overloaded
    chunk_tokens: int = Field(default=512, gt=0)  # prompt tokens of one step
    embedding_cache_bytes: int = Field(default=512 * MIB, ge=0)
    prefix_cache_bytes: int = Field(default=512 * MIB, ge=0)  # KV of prompts; 0 computes all anew
    outbox_bytes: int = Field(default=1024 * MIB, gt=0)  # KV published and not yet fetched


class Transfer(Config):
    """How tensors move between processes."""

    transport: Literal["auto", "grpc", "nixl"] = "auto"
    lease_seconds: float = Field(default=30.0, gt=0)
    timeout_seconds: float = Field(default=20.0, gt=0)
    landing_bytes: int = Field(default=1024 * MIB, gt=0)  # arriving and not yet used


class Revisions(Config):
    """Which version of the service a process belongs to: opaque, and equal for what may serve one
    request together. So a request never meets workers of two versions, and the old version serves
    until the new one is complete. Empty agrees with everything."""

    language: str = ""  # model, engine and image
    encoder: str = ""  # all that, and encoder and processor


class WorkerConfig(Config):
    """Everything that ``triptych-worker TIER`` needs."""

    model: Model
    listen: Listen = Listen()
    encode: EncodeLimits = EncodeLimits()
    language: LanguageLimits = LanguageLimits()
    transfer: Transfer = Transfer()
    # Also load the vision part, for when no encoder is up; None: fused does, prefill does not.
    can_encode: bool | None = None
    revisions: Revisions = Revisions()
    drain_seconds: float = Field(default=60.0, ge=0)
    threads: int = Field(default=0, ge=0)  # torch intra-op threads; 0: torch's default
    # Least from one step of answers to the next where other processes have the cores; 0: none, and
    # not written, so that what pods read, who never have one, is as before.
    pace_seconds: float = Field(default=0.0, ge=0, le=1, exclude_if=lambda seconds: seconds == 0)


class Endpoints(Config):
    """The pods of one tier: fixed addresses, or a headless Service's name that DNS answers."""

    addresses: tuple[str, ...] = ()  # host:port
    dns: str = ""  # name:port, resolved again every few seconds


class MediaLimits(Config):
    """What a request's pictures may cost."""

    max_items: int = Field(default=16, ge=0)
    max_bytes: int = Field(default=20 * MIB, gt=0)  # one encoded picture
    max_pixels: int = Field(default=64_000_000, gt=0)  # one decoded picture, by its header
    inflight_bytes: int = Field(default=1024 * MIB, gt=0)  # decoded, all requests together
    fetch_seconds: float = Field(default=10.0, gt=0)
    decode_seconds: float = Field(default=10.0, gt=0)
    decode_processes: int = Field(default=2, gt=0)
    allow_networks: tuple[str, ...] = ()  # CIDRs that may be fetched from although not public
    # Header that names the tenant, set by a proxy that clients cannot pass; empty: none does.
    tenant_header: str = Field(default="", pattern=r"^[A-Za-z0-9-]*$")
    uuid_bytes: int = Field(default=128 * MIB, ge=0)  # pictures kept for clients that name them


class GatewayConfig(Config):
    """Everything that ``triptych-gateway`` needs."""

    model: Model
    topology: Topology
    encoder: Endpoints = Endpoints()
    prefill: Endpoints = Endpoints()
    decode: Endpoints = Endpoints()
    fused: Endpoints = Endpoints()
    listen: Listen = Listen()
    media: MediaLimits = MediaLimits()
    max_body_bytes: int = Field(default=64 * MIB, gt=0)
    max_concurrent: int = Field(default=256, gt=0)  # more is 429
    request_seconds: float = Field(default=300.0, gt=0)
    processor_cache_bytes: int = Field(default=512 * MIB, ge=0)
    on_encoder_loss: Literal["EncodeInline", "Queue", "RejectMultimodal"] = "RejectMultimodal"
    queue_seconds: float = Field(default=30.0, ge=0)  # how long Queue waits for an encoder
    encoder_rests: bool = False  # there may be no encoder on purpose, until a picture comes
    revisions: Revisions = Revisions()
    drain_seconds: float = Field(default=60.0, ge=0)
