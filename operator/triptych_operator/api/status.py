"""``status``: what the operator saw last."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, Field
from triptych_contract.names import Tier

from triptych_operator.api.rules import ApiModel


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


class ServiceStatus(StatusModel):
    """What the operator saw last."""

    observed_generation: int = Field(default=0, ge=0)
    """The generation of the resource that this status is about."""
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
