"""``spec.tiers``: how many pods of each stage there are, and what each may use."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field, JsonValue
from triptych_contract.names import Tier

from triptych_operator.api.autoscaling import (
    Autoscaling,
    EncoderAutoscaling,
    scaling_rules,
)
from triptych_operator.api.quantities import (
    Bytes,
    PositiveBytes,
    Quantity,
    is_whole,
    parse_quantity,
)
from triptych_operator.api.rules import ApiModel, Rule
from triptych_operator.api.scalars import (
    RESOURCE_NAME,
    Duration,
    LabelValue,
    PositiveDuration,
    label_names_rule,
    names_rule,
)

GPU_RESOURCE: Final = "nvidia.com/gpu"
# Bounds the cost of CEL, of which a whole resource definition has a budget.
_MOST_RESOURCES: Final = 5

_REPLICAS_OR_AUTOSCALING = Rule(
    cel="!(has(self.replicas) && has(self.autoscaling)) || self.autoscaling.mode == 'Advise'",
    message="give either replicas (a fixed number) or autoscaling, not both: remove one, or set "
    "autoscaling.mode: Advise",
    holds=lambda tier: tier.replicas is None or not tier.scales,
)


def _resource_names_rule(field: str) -> Rule:
    message = (
        f"a name in {field} is no resource of a container: write cpu, memory, ephemeral-storage "
        "or a device such as nvidia.com/gpu"
    )
    return names_rule(field, RESOURCE_NAME, message)


def _quantity_of(field: str) -> str:
    """CEL for the quantity of the resource ``k``, which may be written as a number."""
    return f"quantity(string(self.{field}[k]))"


class Resources(ApiModel):
    """Compute resources of each pod, as in a container."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _resource_names_rule("requests"),
        _resource_names_rule("limits"),
        Rule(
            cel="!has(self.requests) || !has(self.limits) || self.requests.all(k, "
            "!(k in self.limits) || "
            f"!{_quantity_of('requests')}.isGreaterThan({_quantity_of('limits')}))",
            message="requests must not exceed limits: lower the request or raise the limit",
            holds=lambda given: all(
                parse_quantity(asked) <= parse_quantity(given.limits[name])
                for name, asked in given.requests.items()
                if name in given.limits
            ),
        ),
        Rule(
            cel="!has(self.limits) || self.limits.all(k, "
            f"!k.contains('/') || {_quantity_of('limits')}.isInteger())",
            message="devices such as nvidia.com/gpu cannot be shared: write a whole number",
            holds=lambda given: all(
                is_whole(limit) for name, limit in given.limits.items() if _is_device(name)
            ),
        ),
        Rule(
            cel="!has(self.requests) || self.requests.all(k, !k.contains('/'))",
            message="devices such as nvidia.com/gpu are requested by their limit: move them from "
            "requests to limits",
            holds=lambda given: not any(_is_device(name) for name in given.requests),
        ),
    )

    requests: dict[str, Quantity] = Field(default_factory=dict, max_length=_MOST_RESOURCES)
    """What the scheduler sets aside, such as cpu: 2 and memory: 8Gi. Write half a CPU as 500m."""
    limits: dict[str, Quantity] = Field(default_factory=dict, max_length=_MOST_RESOURCES)
    """What the pod may use at most. GPUs go here, as nvidia.com/gpu: 1."""


def _is_device(resource: str) -> bool:
    return "/" in resource


class CacheSpec(ApiModel):
    """Memory for results that are kept for the next request."""

    capacity: Bytes
    """Bytes that the cache of each pod may hold, such as 512Mi; 0 keeps nothing."""


class Drain(ApiModel):
    """How a pod goes away."""

    timeout: Duration = "60s"
    """How long a pod that is asked to stop may go on with what it has begun."""


class TemplateMetadata(ApiModel):
    """Labels and annotations to add to the pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        label_names_rule("labels"),
        label_names_rule("annotations"),
    )

    labels: dict[str, LabelValue] = Field(default_factory=dict, max_length=32)
    """Labels to add; those that Triptych sets itself stay."""
    annotations: dict[str, str] = Field(default_factory=dict, max_length=32)
    """Annotations to add."""


class PodTemplate(ApiModel):
    """Changes to the tier's pods, merged over what Triptych makes."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations to add."""
    spec: dict[str, JsonValue] = Field(default_factory=dict)
    """Part of a PodSpec, merged strategically: nodeSelector, tolerations, affinity,
    priorityClassName, volumes, containers (by name; Triptych's own is called "triptych")."""


class EncodeLimits(ApiModel):
    """Bounds of the encode stage in each pod."""

    batch_visual_tokens: int = Field(default=16_384, ge=1, le=10_000_000)
    """Visual tokens of one forward pass: larger is faster and takes more memory."""
    queue_visual_tokens: int = Field(default=131_072, ge=1, le=100_000_000)
    """Visual tokens that may wait; more is refused, to be tried on another pod."""
    inflight: PositiveBytes = "1Gi"
    """Pixels received and not yet encoded."""


class LanguageLimits(ApiModel):
    """Bounds of the prefill and decode stages in each pod."""

    kv_tokens: int = Field(default=32_768, ge=1, le=100_000_000)
    """Tokens whose keys and values fit the memory that is set aside at the start."""
    max_running: int = Field(default=64, ge=1, le=65_536)
    """Sequences of one step."""
    queue_tokens: int = Field(default=131_072, ge=1, le=100_000_000)
    """Prompt tokens that may wait; more is refused, to be tried on another pod."""
    chunk_tokens: int = Field(default=512, ge=1, le=1_000_000)
    """Prompt tokens of one step: smaller lets running answers go on more evenly."""
    outbox: PositiveBytes = "1Gi"
    """Keys and values that wait to be fetched by the decode tier."""


class GatewayLimits(ApiModel):
    """Bounds of each gateway pod."""

    max_body: PositiveBytes = "64Mi"
    """Size of one request's body."""
    max_concurrent: int = Field(default=256, ge=1, le=65_536)
    """Requests at a time; more is answered with 429."""
    request_timeout: PositiveDuration = "5m"
    """How long one request may take in all."""


class TierSpec(ApiModel):
    """What every tier has."""

    replicas: int | None = Field(default=None, ge=1, le=1000)
    """Fixed number of pods. Default: autoscaling.min, or 1 without autoscaling."""
    autoscaling: Autoscaling | None = None
    """Number of pods by load, instead of replicas, or as advice beside it."""
    resources: Resources = Field(default_factory=Resources)
    """Compute resources of each pod. A GPU under limits makes the tier run on it."""
    drain: Drain = Field(default_factory=Drain)
    """How a pod of this tier goes away."""
    template: PodTemplate = Field(default_factory=PodTemplate)
    """Changes to the pods of this tier."""

    @property
    def scales(self) -> bool:
        """Whether an autoscaler sets the number of pods."""
        return self.autoscaling is not None and self.autoscaling.acts

    @property
    def initial_replicas(self) -> int:
        """The fixed number of pods, or what autoscaling begins with."""
        if self.replicas is not None:
            return self.replicas
        return self.autoscaling.min if self.autoscaling is not None else 1

    @property
    def device(self) -> str:
        """What the tier computes on: ``cuda`` when its pods get a GPU, else ``cpu``."""
        gpus = parse_quantity(self.resources.limits.get(GPU_RESOURCE, "0"))
        return "cuda" if gpus > 0 else "cpu"


class EncoderTier(TierSpec):
    """Turns pictures into embeddings."""

    rules: ClassVar[tuple[Rule, ...]] = (_REPLICAS_OR_AUTOSCALING, *scaling_rules(Tier.ENCODER))

    autoscaling: EncoderAutoscaling | None = None
    """Number of pods by load, instead of replicas, or as advice beside it."""
    cache: CacheSpec = Field(default_factory=lambda: CacheSpec(capacity="1Gi"))
    """Embeddings that are kept, so that a picture seen before is not encoded again."""
    limits: EncodeLimits = Field(default_factory=EncodeLimits)
    """Bounds of each pod."""


def _prefix_cache() -> CacheSpec:
    return CacheSpec(capacity="512Mi")


class PrefillTier(TierSpec):
    """Runs the prompt and makes the first token."""

    rules: ClassVar[tuple[Rule, ...]] = (_REPLICAS_OR_AUTOSCALING, *scaling_rules(Tier.PREFILL))

    cache: CacheSpec = Field(default_factory=lambda: CacheSpec(capacity="512Mi"))
    """Embeddings fetched from encoders that are kept."""
    prefix_cache: CacheSpec = Field(default_factory=_prefix_cache)
    """Keys and values of prompts that are kept, so that what two begin with is computed once."""
    limits: LanguageLimits = Field(default_factory=LanguageLimits)
    """Bounds of each pod."""


class DecodeTier(TierSpec):
    """Makes the tokens after the first."""

    rules: ClassVar[tuple[Rule, ...]] = (_REPLICAS_OR_AUTOSCALING, *scaling_rules(Tier.DECODE))

    limits: LanguageLimits = Field(default_factory=LanguageLimits)
    """Bounds of each pod."""


class FusedTier(TierSpec):
    """Runs the prompt and makes all tokens; in topology Fused it encodes pictures too."""

    rules: ClassVar[tuple[Rule, ...]] = (_REPLICAS_OR_AUTOSCALING, *scaling_rules(Tier.FUSED))

    cache: CacheSpec = Field(default_factory=lambda: CacheSpec(capacity="512Mi"))
    """Embeddings that are kept, made here or fetched from encoders."""
    prefix_cache: CacheSpec = Field(default_factory=_prefix_cache)
    """Keys and values of prompts that are kept, so that what two begin with is computed once."""
    encode: EncodeLimits = Field(default_factory=EncodeLimits)
    """Bounds of each pod when it encodes."""
    limits: LanguageLimits = Field(default_factory=LanguageLimits)
    """Bounds of each pod."""


class GatewayTier(TierSpec):
    """Speaks the OpenAI API, fetches and decodes pictures, and routes."""

    rules: ClassVar[tuple[Rule, ...]] = (_REPLICAS_OR_AUTOSCALING, *scaling_rules(Tier.GATEWAY))

    cache: CacheSpec = Field(default_factory=lambda: CacheSpec(capacity="512Mi"))
    """Pixels that are kept, so that a picture seen before is not processed again."""
    limits: GatewayLimits = Field(default_factory=GatewayLimits)
    """Bounds of each pod."""


class Tiers(ApiModel):
    """The pools of pods. One that is left out has one pod and the defaults."""

    encoder: EncoderTier | None = None
    """Turns pictures into embeddings. In topologies EncodeSplit and FullSplit."""
    prefill: PrefillTier | None = None
    """Runs the prompt and makes the first token. In topology FullSplit."""
    decode: DecodeTier | None = None
    """Makes the tokens after the first. In topology FullSplit."""
    fused: FusedTier | None = None
    """Runs the prompt and makes all tokens. In topologies Fused and EncodeSplit."""
    gateway: GatewayTier | None = None
    """Speaks the OpenAI API. In every topology."""
