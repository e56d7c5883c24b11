"""What a loaded tier consists of, as the gRPC services see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from triptych_contract.fingerprints import EncoderIdentity, encoder_fingerprint

from triptych_worker.domain import (
    CacheStats,
    Capacity,
    DecodeStage,
    EncodeStage,
    FusedStage,
    Holding,
    Load,
    PrefillStage,
)


class FingerprintedCache(Protocol):
    """A cache whose entries an encoder version makes stale."""

    def holdings(self) -> Sequence[Holding]:
        """What is held, by fingerprint."""
        ...

    def drop_others(self, keep: str) -> tuple[int, int]:
        """Drops what is of another fingerprint; entries and bytes that went now."""
        ...

    def stats(self) -> CacheStats:
        """Running totals."""
        ...


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of this tier; a tier answers only for those that it has."""

    encode: EncodeStage | None = None
    prefill: PrefillStage | None = None
    decode: DecodeStage | None = None
    fused: FusedStage | None = None


@dataclass(frozen=True, slots=True)
class LoadedTier:
    """Stages with what they were made from and what they keep."""

    stages: Stages
    capacity: Capacity
    load: Callable[[], Load]
    caches: Sequence[FingerprintedCache]
    close: Callable[[], None]
    encoder_identity: EncoderIdentity | None = None
    model_digest: str = ""
    kv_layout: str = ""

    @property
    def fingerprint(self) -> str:
        """Of the vision part; empty without one."""
        return encoder_fingerprint(self.encoder_identity) if self.encoder_identity else ""
