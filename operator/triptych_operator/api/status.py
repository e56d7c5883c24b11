"""``status``: what the operator saw last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, ValidationError
from triptych_contract.names import Cache, Tier

from triptych_operator.api.autoscaling import Signal
from triptych_operator.api.rules import ApiModel

UNSEEN: Final = -1  # an observed generation that no resource has


class ConditionType(StrEnum):
    """What a condition is about. Reconciling and Stalled are there only while they are true."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    ENCODER_READY = "EncoderReady"
    PREFILL_READY = "PrefillReady"
    DECODE_READY = "DecodeReady"
    FUSED_READY = "FusedReady"
    GATEWAY_READY = "GatewayReady"
    CACHES_COHERENT = "CachesCoherent"


class StatusModel(ApiModel):
    """Base of what the operator writes: built by field name, read and written in camelCase."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)


class Condition(StatusModel):
    """One aspect of the resource's state, as everywhere in Kubernetes."""

    type: ConditionType
    """What it is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str = Field(min_length=1, max_length=128)
    """Why, as one word for programs."""
    message: str = Field(default="", max_length=4096)
    """Why, for people, and what to do about it."""
    last_transition_time: str = Field(max_length=64, json_schema_extra={"format": "date-time"})
    """When status last changed."""
    observed_generation: int = Field(default=0, ge=0)
    """The generation of the resource that this was said about."""


class TierStatus(StatusModel):
    """The pods of one tier."""

    name: Tier
    """Which tier."""
    pods: str = Field(max_length=32)
    """Ready and desired pods, as 2/2."""
    desired: int = Field(ge=0)
    """Pods that should be."""
    ready: int = Field(ge=0)
    """Pods of the current revision that are ready."""
    updated: int = Field(ge=0)
    """Pods of the current revision."""
    revision: str = Field(default="", max_length=64)
    """The revision that the pods should have."""
    limited_by: str = Field(default="", max_length=2048)
    """What keeps the autoscaler of this tier from its work."""


class SignalStatus(StatusModel):
    """One signal of a tier, as of the last time that it had changed by much."""

    name: Signal
    """Which signal."""
    value: str = Field(max_length=32)
    """What was measured: of each pod, or over the tier."""
    target: str = Field(max_length=32)
    """What it is to be kept at."""


class ScalingStatus(StatusModel):
    """What an autoscaled tier scales on."""

    name: Tier
    """Which tier."""
    signals: tuple[SignalStatus, ...] = Field(default=(), max_length=8)
    """Its signals that could be measured."""
    advised: int | None = Field(default=None, ge=0)
    """With autoscaling.mode Advise: the pods that Auto would come to, given time. What behavior
    holds back meanwhile is not in it."""
    advised_by: Signal | None = None
    """The signal that asks for them; none when they stay as they are for want of a signal."""
    advised_without: tuple[Signal, ...] | None = Field(default=None, max_length=8)
    """Metrics of the tier that have no say in advised: those that others measure (CPUUtilization,
    MemoryUtilization, External), and those that no pod told. An autoscaler that can read them may
    set more pods; while there are any, fewer than now are never advised."""


class CacheUseStatus(StatusModel):
    """One kind of cache over all pods, as of the last time that it had changed by much. Counts are
    of the pods that run: each begins with its process."""

    name: Cache
    """Which cache."""
    bytes: int = Field(ge=0)
    """Bytes that are held."""
    capacity: int = Field(ge=0)
    """Bytes that may be held; 0 when it is switched off."""
    hits: int = Field(ge=0)
    """Look-ups that were answered."""
    misses: int = Field(ge=0)
    """Look-ups that were not."""
    evictions: int = Field(ge=0)
    """Entries that made room for others."""
    seconds_saved: str = Field(max_length=32)
    """Work that hits made unnecessary, in seconds."""


class CachesStatus(StatusModel):
    """What the caches hold, as of the last flush that reached every holder, and what they are
    worth."""

    fingerprint: str = Field(default="", max_length=64)
    """The encoder whose embeddings all holders hold, and no other's."""
    epoch: int = Field(default=0, ge=0)
    """Counts flushes."""
    holders: str = Field(default="", max_length=32)
    """Pods that were asked and hold this fingerprint alone, of all that hold a cache, as 6/6."""
    bytes_freed: int = Field(default=0, ge=0)
    """Bytes that the last flush freed."""
    last_flush_time: str = Field(default="", max_length=64)
    """When it was complete."""
    reason: str = Field(default="", max_length=128)
    """Why there was one."""
    revision: str = Field(default="", max_length=64)
    """The revision of the encoder that was in service."""
    flush_token: str = Field(default="", max_length=253)
    """The last value of the annotation triptych.dev/flush-caches that was acted upon."""
    use: tuple[CacheUseStatus, ...] = Field(
        default=(),
        max_length=8,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    """How each cache is used."""


class ServiceStatus(StatusModel):
    """What the operator saw last."""

    observed_generation: int = Field(default=UNSEEN, ge=UNSEEN)
    """The generation of the resource that this status is about; -1 before any operator has seen it,
    so that nobody takes a resource without conditions for one that is well."""
    conditions: tuple[Condition, ...] = Field(
        default=(),
        max_length=16,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    """The aspects of its state. Ready is true when every pod of every tier has the current revision
    and is ready."""
    tiers: tuple[TierStatus, ...] = Field(
        default=(),
        max_length=8,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    """The pods of each tier."""
    url: str = Field(default="", max_length=512)
    """Where clients in the cluster reach the gateway."""
    caches: CachesStatus | None = None
    """What the caches hold."""
    limiting_tier: Tier | None = None
    """The tier that holds up the others: its signals are furthest above their targets."""
    scaling: tuple[ScalingStatus, ...] | None = Field(
        default=None,
        max_length=8,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    """What the autoscaled tiers scale on."""


def status_in(body: Mapping[str, Any]) -> ServiceStatus:
    """The status of a resource as the API server hands it out; empty when there is none that this
    version could have written."""
    try:
        return ServiceStatus.model_validate_json(json.dumps(body.get("status") or {}))
    except ValidationError:
        return ServiceStatus()


def without_others(status: ServiceStatus) -> ServiceStatus:
    """The status but for what is said of caches and of signals, which have writers of their own."""
    kept = (one for one in status.conditions if one.type != ConditionType.CACHES_COHERENT)
    others = {"caches": None, "limiting_tier": None, "scaling": None}
    return status.model_copy(update={**others, "conditions": tuple(kept)})
