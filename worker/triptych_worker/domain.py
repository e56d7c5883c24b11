"""The words of the worker: what stages take and give. No protobuf, no gRPC, no I/O.

Tensors are torch tensors; everything else is frozen data.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from triptych_contract.names import Stage

if TYPE_CHECKING:  # schedulers, caches and their tests need these words, not seconds of torch
    import torch


class HandleKind(StrEnum):
    """What a handle leads to."""

    EMBEDDING = "embedding"
    KV = "kv"


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Handle:
    """A lease on one tensor that some process holds. Mirrors ``triptych.v1.Handle``."""

    kind: HandleKind
    lease_id: str
    source: str  # host:port of the holder's Transfer service
    instance: str
    key: bytes
    fingerprint: str
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    checksum: bytes
    ttl_seconds: float
    transports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """``length`` placeholder tokens from ``offset`` on, replaced by embedding rows."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class MediaItem:
    """One picture of a prompt. ``grid`` is (t, h, w) in patches for the mrope families."""

    handle: Handle
    spans: tuple[Span, ...]
    grid: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids with placeholders expanded, and the media that fill them, in prompt order."""

    token_ids: tuple[int, ...]
    media: tuple[MediaItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. Token ``i`` of an answer depends only on its logits, these, and ``i``,
    so a seed gives the same answer in any batch and across the prefill/decode boundary."""

    temperature: float = 0.0  # 0 is greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 keeps all
    seed: int = 0
    max_tokens: int = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: bool = False
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probability of one token under the unmodified distribution."""

    token_id: int
    text: str
    logprob: float
    utf8: bytes


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The chosen token and the ``top_logprobs`` most likely ones."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds by ``names.Stage`` and counts by ``names.Count``."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One generated token; ``text`` is what it adds to the answer."""

    token_id: int
    text: str
    logprobs: Logprobs | None = None
    finish_reason: FinishReason | None = None
    times: StageTimes | None = None


@dataclass(frozen=True, slots=True)
class EncodeInput:
    """One media item to encode: the arguments of the model's vision part by name.

    ``visual_tokens`` is the number of embedding rows that must come out.
    """

    key: bytes
    tensors: Mapping[str, torch.Tensor]
    grid: tuple[int, ...]
    visual_tokens: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """A leased embedding and how long it took. ``cached``: it was there already."""

    handle: Handle
    times: StageTimes
    cached: bool


@dataclass(frozen=True, slots=True)
class GenerateInput:
    """One request to the language model. Without a ``salt`` its keys and values are shared with
    no other request's."""

    request_id: str
    fingerprint: str
    prompt: Prompt
    sampling: Sampling
    salt: bytes = b""


@dataclass(frozen=True, slots=True)
class DecodeState:
    """What decode needs beside keys and values. Mirrors ``triptych.v1.DecodeState``."""

    prompt_tokens: int
    position_delta: int
    output_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The first token, and the KV of the prompt unless the first token ended the answer."""

    first: TokenEvent
    kv: Handle | None
    state: DecodeState


@dataclass(frozen=True, slots=True)
class DecodeInput:
    """An answer to go on with."""

    request_id: str
    kv: Handle
    state: DecodeState
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Capacity:
    """Mirrors ``triptych.v1.Capacity``."""

    context_tokens: int = 0
    kv_tokens: int = 0
    embedding_cache_bytes: int = 0
    max_running: int = 0
    max_batch_visual_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """Mirrors ``triptych.v1.Load``: what a stage has to do right now."""

    running: int = 0
    waiting: int = 0
    backlog_tokens: int = 0
    kv_tokens_used: int = 0
    leases: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """What one cache holds of one fingerprint."""

    cache: str
    fingerprint: str
    entries: int
    bytes: int
    leased_bytes: int


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Running totals of one cache, and what it holds now."""

    cache: str
    hits: int
    misses: int
    evictions: int
    bytes: int
    capacity_bytes: int
    seconds_saved: float


class Observer(Protocol):
    """Where stages report what they measured; gauges are read from ``load`` and ``stats``."""

    def seconds(self, stage: Stage, value: float) -> None:
        """One duration of ``stage``."""
        ...

    def add(self, metric: str, amount: float = 1.0, **labels: str) -> None:
        """Increases the counter ``metric`` (a constant of ``names.Metric``)."""
        ...

    def time_per_output_token(self, value: float) -> None:
        """Seconds between two tokens of one answer."""
        ...


class VisionModel(Protocol):
    """The vision part of a model, one adapter per family. Called from one torch thread only."""

    width: int  # of an embedding row, deepstack features included
    pass_tokens: int  # embedding rows of one pass through the module; more at once is no faster
    dtype: torch.dtype
    weights_digest: str  # hexadecimal BLAKE3 over the loaded vision tensors

    def encode(self, items: Sequence[EncodeInput]) -> list[torch.Tensor]:
        """One embedding per item, in order: CPU tensors [visual_tokens, width] of ``dtype``.

        Raises:
            InvalidRequest: an item's tensors are not what the family expects.
        """
        ...


class TensorSource(Protocol):
    """Gets the tensor behind a handle, from this process or another."""

    def borrow(self, handle: Handle) -> AbstractAsyncContextManager[torch.Tensor]:
        """The verified CPU tensor, valid inside the ``async with``; keep a copy, not the tensor.

        From another process it is pulled and its lease released on arrival; from this process it is
        the holder's own memory, and the lease is released on exit. Concurrent borrows of one
        embedding from one other process are fetched once.

        Raises (on entry):
            LeaseExpired, FingerprintMismatch, TransferCorrupted, Unavailable, DeadlineExceeded.
        """
        ...

    async def release(self, handles: Sequence[Handle]) -> None:
        """Gives leases back unread; failures are logged, since leases expire by themselves."""
        ...


class TensorHolder(Protocol):
    """Memory that peers may read, bounded in bytes; leases pin what is in it."""

    def publish(
        self,
        kind: HandleKind,
        key: bytes,
        fingerprint: str,
        tensor: torch.Tensor,
        *,
        seconds: float = 0.0,
    ) -> Handle:
        """Copies ``tensor`` in and leases it once. Embeddings stay, evictable, after their leases
        have ended; KV is freed with its lease. Called off the event loop: it copies and hashes.

        Args:
            kind: embeddings of an equal key are one.
            key: cache key (embedding), or a key of this KV alone.
            fingerprint: what the tensor hangs on.
            tensor: on any device.
            seconds: what making it took, saved by every later lease.

        Raises:
            Overloaded: what is leased leaves no room.
            TooLarge: the tensor alone exceeds the bound.
            FingerprintMismatch: this encoder version's embeddings were dropped for another's.
        """
        ...

    def lease(self, key: bytes, fingerprint: str) -> Handle | None:
        """One more lease on an embedding that is held, or None."""
        ...

    def verify(self, key: bytes, fingerprint: str) -> bool:
        """Drops an embedding that is held and is not as it was made; False then. Called off the
        event loop: it hashes."""
        ...

    def release(self, lease_ids: Iterable[str]) -> int:
        """Ends leases; unknown ones are passed over. How many ended."""
        ...


class EncodeStage(Protocol):
    """admit -> plan -> forward -> publish, for pictures."""

    async def lease(
        self, keys: Sequence[bytes], fingerprint: str, *, verify: bool = False, peer: str = ""
    ) -> list[Handle | None]:
        """A handle for each key that is held or being encoded, None for each miss.

        Args:
            keys: of the embeddings.
            fingerprint: of the encoder that is asked for.
            verify: hash what is held first, and drop what is not as it was made.
            peer: an encoder that may hold what this one misses; empty if there is none.

        Raises:
            FingerprintMismatch, Unavailable (draining).
        """
        ...

    async def encode(self, item: EncodeInput, fingerprint: str) -> Encoded:
        """Encodes once per key however many ask at a time.

        Raises:
            Overloaded, TooLarge, InvalidRequest, NonFinite, FingerprintMismatch, Unavailable.
        """
        ...


class PrefillStage(Protocol):
    """admit -> plan -> forward -> publish, for prompts."""

    async def prefill(self, request: GenerateInput) -> Prefilled:
        """Runs the prompt and samples the first token. Cancelling the task frees everything."""
        ...


class DecodeStage(Protocol):
    """admit -> plan -> forward -> publish, for answers."""

    def decode(self, request: DecodeInput) -> AsyncGenerator[TokenEvent, None]:
        """The tokens after those in the state. Closing the iterator frees the sequence."""
        ...


class FusedStage(Protocol):
    """Prefill and decode in one engine, without copying keys and values."""

    def generate(self, request: GenerateInput) -> AsyncGenerator[TokenEvent, None]:
        """All tokens of the answer. Closing the iterator frees the sequence."""
        ...
