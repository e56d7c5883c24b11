"""When caches are to be flushed, who holds any, and what to say of the outcome. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from triptych_contract.names import Tier

from triptych_operator.api.status import CachesStatus
from triptych_operator.observed.snapshot import Snapshot

# Whose caches are dropped before whose: from where pictures come in to where they are used.
ORDER: Final = (Tier.GATEWAY, Tier.ENCODER, Tier.PREFILL, Tier.FUSED)
_NAMED: Final = 5  # holders that a message lists


class Cause(StrEnum):
    """Why caches are flushed."""

    FIRST = "FirstVersion"
    ENCODER_CHANGED = "EncoderChanged"
    REQUESTED = "Requested"
    UNFINISHED = "Unfinished"  # an earlier flush did not reach every holder


class Verdict(StrEnum):
    """The ``reason`` of the condition CachesCoherent."""

    COHERENT = "OneFingerprintEverywhere"
    ROLLING_OUT = "RollingOut"
    UNREACHABLE = "HolderUnreachable"
    HOLDS_OLD = "HolderHoldsOld"
    ENCODERS_DIFFER = "EncodersDiffer"
    CONTRADICTORY = "EncoderContradictsItself"


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that may hold cached tensors or pixels."""

    pod: str
    tier: Tier
    address: str  # of the pod, without a port


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a holder answered to a flush."""

    holder: Holder
    freed_bytes: int = 0
    held: frozenset[str] = frozenset()  # fingerprints that it still holds after it
    problem: str = ""  # why it did not answer


@dataclass(frozen=True, slots=True)
class Finding:
    """What to say of a flush."""

    verdict: Verdict
    message: str

    @property
    def coherent(self) -> bool:
        """Whether every holder holds one fingerprint alone."""
        return self.verdict is Verdict.COHERENT


def cause(caches: CachesStatus, revision: str, token: str, *, coherent: bool) -> Cause | None:
    """Why a flush is due, or ``None``.

    Args:
        caches: what the status says of the last one that was complete.
        revision: of the encoder, as the resource asks for it.
        token: of the annotation that asks for a flush.
        coherent: whether the condition CachesCoherent is true.
    """
    if not caches.revision:
        return Cause.FIRST
    if caches.revision != revision:
        return Cause.ENCODER_CHANGED
    if token and token != caches.flush_token:
        return Cause.REQUESTED
    return None if coherent else Cause.UNFINISHED


def holders(snapshot: Snapshot) -> list[Holder]:
    """Every pod that holds a cache, in the order in which they are to be flushed."""
    return [
        Holder(pod.name, tier, pod.address)
        for tier in ORDER
        for pod in snapshot.tier(tier).pods
        if pod.address and not pod.terminating
    ]


def finding(fingerprint: str, outcomes: Sequence[Outcome]) -> Finding:
    """What to say when ``outcomes`` are the answers of all holders to keeping ``fingerprint``."""
    silent = [f"{one.holder.pod} ({one.problem})" for one in outcomes if one.problem]
    if silent:
        message = f"not asked yet what they hold, as they do not answer: {_listed(silent)}"
        return Finding(Verdict.UNREACHABLE, message)
    stale = [one.holder.pod for one in outcomes if one.held - {fingerprint}]
    if stale:
        message = f"in use, to be dropped when released: held by {_listed(stale)}"
        return Finding(Verdict.HOLDS_OLD, message)
    return Finding(
        Verdict.COHERENT,
        f"all {len(outcomes)} holders hold encoder {fingerprint[:12]} alone",
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
