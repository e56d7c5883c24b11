"""Which pods can serve together. Pure: pods as they described themselves come in, a route goes out.

A pipeline is only ever made of pods that agree: encoders on one fingerprint, and prefill and decode
on one language model and one layout of its keys and values. Where the operator has given them
revisions, all of them and the gateway are of the same: while a new version of the service comes up
beside the old, each gateway uses the workers of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from triptych_contract.config import Revisions
from triptych_contract.fingerprints import EncoderIdentity
from triptych_contract.names import Tier, Topology

_ANY: Final = Revisions()


@dataclass(frozen=True, slots=True)
class Pod:
    """One serving pod, as it described itself last."""

    tier: Tier
    address: str
    instance: str = ""
    identity: EncoderIdentity | None = None
    fingerprint: str = ""
    model_digest: str = ""
    kv_layout: str = ""
    can_encode: bool = False
    context_tokens: int = 0
    kv_tokens: int = 0
    busy: int = 0  # requests running and waiting
    revisions: Revisions = _ANY

    @property
    def language(self) -> tuple[str, str]:
        """What prefill and decode must agree on."""
        return self.model_digest, self.kv_layout


@dataclass(frozen=True, slots=True)
class Expected:
    """What this gateway's own configuration says about the encoder: its processor must have made
    the pixels that the encoder's fingerprint speaks of. And which revisions its workers have."""

    identity: EncoderIdentity  # weights and engine version are the encoder's to state
    revisions: Revisions = _ANY

    def is_own(self, pod: Pod) -> bool:
        """Whether a pod belongs to the version of the service that this gateway belongs to."""
        own, its = self.revisions, pod.revisions
        if pod.tier is Tier.ENCODER:
            return _agree(own.encoder, its.encoder)
        return _agree(own.language, its.language)

    def may_encode(self, pod: Pod) -> bool:
        """Whether a language pod may stand in for an encoder."""
        return pod.can_encode and _agree(self.revisions.encoder, pod.revisions.encoder)

    def accepts(self, identity: EncoderIdentity | None) -> bool:
        """Whether an encoder with ``identity`` reads what this gateway's processor makes."""
        if identity is None:
            return False
        own, other = self.identity, identity
        return (
            own.source == other.source
            and own.revision == other.revision
            and own.processor_revision == other.processor_revision
            and own.processor == other.processor
            and own.media == other.media
            and own.dtype == other.dtype
        )


@dataclass(frozen=True, slots=True)
class Route:
    """Pods that agree, by what they are asked for."""

    fingerprint: str = ""
    encoders: tuple[Pod, ...] = ()
    inline: tuple[Pod, ...] = ()  # language pods that can encode, for when no encoder is up
    prefill: tuple[Pod, ...] = ()
    decode: tuple[Pod, ...] = ()
    fused: tuple[Pod, ...] = ()

    @property
    def model_digest(self) -> str:
        """Of the language model."""
        pods = self.fused or self.prefill
        return pods[0].model_digest if pods else ""

    @property
    def context_tokens(self) -> int:
        """The longest prompt with its answer that every language pod can take; 0 if unknown."""
        pods = (*self.fused, *self.prefill, *self.decode)
        bounds = [bound for pod in pods for bound in (pod.context_tokens, pod.kv_tokens) if bound]
        return min(bounds, default=0)


def plan_route(pods: Iterable[Pod], topology: Topology, expected: Expected) -> Route:
    """The pods that serve together now. Of several revisions the one that most pods have wins."""
    found = [pod for pod in pods if expected.is_own(pod)]
    language = _language(found, topology)
    tiers = {
        tier: tuple(pod for pod in found if pod.tier is tier and pod.language == language)
        for tier in (Tier.PREFILL, Tier.DECODE, Tier.FUSED)
    }
    encoders = [pod for pod in found if pod.tier is Tier.ENCODER]
    language_pods = (*tiers[Tier.FUSED], *tiers[Tier.PREFILL])
    inline = [pod for pod in language_pods if expected.may_encode(pod)]
    fingerprint = _fingerprint(encoders, expected) or _fingerprint(inline, expected)
    alike = tuple(pod for pod in inline if pod.fingerprint == fingerprint)
    split = Tier.ENCODER in topology.tiers
    return Route(
        fingerprint=fingerprint,
        encoders=tuple(p for p in encoders if p.fingerprint == fingerprint) if split else alike,
        inline=alike,
        prefill=tiers[Tier.PREFILL],
        decode=tiers[Tier.DECODE],
        fused=tiers[Tier.FUSED],
    )


def missing_tiers(route: Route, topology: Topology) -> tuple[Tier, ...]:
    """The tiers of ``topology`` without a pod that could serve."""
    pools = {
        Tier.ENCODER: route.encoders,
        Tier.PREFILL: route.prefill,
        Tier.DECODE: route.decode,
        Tier.FUSED: route.fused,
    }
    return tuple(tier for tier in topology.tiers if tier in pools and not pools[tier])


def _agree(own: str, other: str) -> bool:
    return not own or not other or own == other


def _language(pods: Sequence[Pod], topology: Topology) -> tuple[str, str]:
    """The language model of the most complete pipelines."""
    tiers = [tier for tier in topology.tiers if tier not in {Tier.ENCODER, Tier.GATEWAY}]
    counts = {tier: Counter(pod.language for pod in pods if pod.tier is tier) for tier in tiers}
    candidates = sorted({language for count in counts.values() for language in count})
    if not candidates:
        return "", ""

    def completeness(language: tuple[str, str]) -> tuple[int, int]:
        sizes = [counts[tier][language] for tier in tiers]
        return min(sizes), sum(sizes)

    return max(candidates, key=completeness)


def _fingerprint(pods: Iterable[Pod], expected: Expected) -> str:
    """The commonest fingerprint of the pods that read this gateway's pixels, or none."""
    counts = Counter(pod.fingerprint for pod in pods if expected.accepts(pod.identity))
    return max(sorted(counts), key=lambda fingerprint: counts[fingerprint], default="")
