"""``spec.tiers.*.autoscaling``: bounds, signals and pace of a tier's HorizontalPodAutoscaler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, Final, Literal, Protocol

from pydantic import Field
from triptych_contract.names import Tier

from triptych_operator.api.quantities import PositiveQuantity, is_whole, parse_quantity
from triptych_operator.api.rules import ApiModel, Rule
from triptych_operator.api.scalars import (
    LabelValue,
    MetricName,
    PositiveDuration,
    label_names_rule,
)


class Signal(StrEnum):
    """What a tier can scale on."""

    CPU_UTILIZATION = "CPUUtilization"
    MEMORY_UTILIZATION = "MemoryUtilization"
    EXTERNAL = "External"
    IMAGES_PER_SECOND = "ImagesPerSecond"
    VISUAL_TOKENS_PER_SECOND = "VisualTokensPerSecond"
    INPUT_TOKENS_PER_SECOND = "InputTokensPerSecond"
    STAGE_UTILIZATION = "StageUtilization"
    QUEUE_WAIT = "QueueWait"
    BACKLOG_TOKENS = "BacklogTokens"
    RUNNING_REQUESTS = "RunningRequests"
    KV_UTILIZATION = "KVUtilization"
    TIME_PER_OUTPUT_TOKEN = "TimePerOutputToken"  # noqa: S105 - a measure, no secret
    TIME_TO_FIRST_TOKEN = "TimeToFirstToken"  # noqa: S105 - a measure, no secret
    PICTURE_REQUESTS_PER_SECOND = "PictureRequestsPerSecond"
    REQUESTS_WITHOUT_ENCODER = "RequestsWithoutEncoder"


# Measured by the cluster itself, in percent of what the pods request.
OF_THE_CLUSTER: Final = frozenset({Signal.CPU_UTILIZATION, Signal.MEMORY_UTILIZATION})
# Means over the tier already; dividing them by its pods would say nothing.
OVER_THE_TIER: Final = frozenset(
    {
        Signal.QUEUE_WAIT,
        Signal.KV_UTILIZATION,
        Signal.TIME_PER_OUTPUT_TOKEN,
        Signal.TIME_TO_FIRST_TOKEN,
    }
)

_ENCODE: Final = (
    Signal.IMAGES_PER_SECOND,
    Signal.VISUAL_TOKENS_PER_SECOND,
    Signal.STAGE_UTILIZATION,
    Signal.QUEUE_WAIT,
    Signal.BACKLOG_TOKENS,
    Signal.TIME_TO_FIRST_TOKEN,
    Signal.PICTURE_REQUESTS_PER_SECOND,
    Signal.REQUESTS_WITHOUT_ENCODER,
)
_PREFILL: Final = (
    Signal.INPUT_TOKENS_PER_SECOND,
    Signal.STAGE_UTILIZATION,
    Signal.QUEUE_WAIT,
    Signal.BACKLOG_TOKENS,
    Signal.TIME_TO_FIRST_TOKEN,
)
_DECODE: Final = (Signal.RUNNING_REQUESTS, Signal.KV_UTILIZATION, Signal.TIME_PER_OUTPUT_TOKEN)
_GATEWAY: Final = (Signal.RUNNING_REQUESTS, Signal.TIME_TO_FIRST_TOKEN)

# What Triptych itself measures of each tier.
MEASURED: Final[Mapping[Tier, tuple[Signal, ...]]] = {
    Tier.ENCODER: _ENCODE,
    Tier.PREFILL: _PREFILL,
    Tier.DECODE: _DECODE,
    Tier.FUSED: (*_PREFILL, *_DECODE),
    Tier.GATEWAY: _GATEWAY,
}
# What each tier may scale on.
SIGNALS: Final[Mapping[Tier, tuple[Signal, ...]]] = {
    tier: (Signal.CPU_UTILIZATION, Signal.MEMORY_UTILIZATION, Signal.EXTERNAL, *measured)
    for tier, measured in MEASURED.items()
}


class ExternalMetric(ApiModel):
    """A metric that somebody else serves."""

    rules: ClassVar[tuple[Rule, ...]] = (label_names_rule("selector"),)

    name: MetricName
    """Its name in the external metrics API of the cluster; with KEDA, in Prometheus."""
    selector: dict[str, LabelValue] = Field(default_factory=dict, max_length=4)
    """Labels that its series must have."""
    per: Literal["Pod", "Tier"] = "Pod"
    """Pod: the target is each pod's share of the value, as of a queue that all pods work on. Tier:
    the value itself is kept at the target, as of a latency."""


class ScalingMetric(ApiModel):
    """One signal and the value to keep it at."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(self.signal in ['CPUUtilization', 'MemoryUtilization']) || "
            "quantity(string(self.target)).isInteger()",
            message="the target of CPUUtilization and MemoryUtilization is in percent of what is "
            "requested: write a whole number such as 80",
            holds=lambda given: given.signal not in OF_THE_CLUSTER or is_whole(given.target),
        ),
        Rule(
            cel="(self.signal == 'External') == has(self.external)",
            message="signal External and external.name go together: give both, or neither",
            holds=lambda given: (given.signal is Signal.EXTERNAL) == (given.external is not None),
        ),
    )

    signal: Signal
    """What is measured. Every tier has CPUUtilization and MemoryUtilization, which work in every
    cluster that has metrics-server, and External, any metric of your own; the others are Triptych's
    own. encoder: ImagesPerSecond, VisualTokensPerSecond, StageUtilization, QueueWait,
    BacklogTokens, TimeToFirstToken (of requests with pictures), PictureRequestsPerSecond,
    RequestsWithoutEncoder. prefill: InputTokensPerSecond, StageUtilization, QueueWait,
    BacklogTokens, TimeToFirstToken. decode: RunningRequests, KVUtilization, TimePerOutputToken.
    fused: those of prefill and decode. gateway: RunningRequests, TimeToFirstToken."""
    target: PositiveQuantity
    """Value to keep the signal at. Per pod: ImagesPerSecond, VisualTokensPerSecond,
    InputTokensPerSecond, PictureRequestsPerSecond, BacklogTokens, RunningRequests,
    RequestsWithoutEncoder, and StageUtilization, the share of its time that a pod encodes or
    prefills, from 0 to 1 (700m is 70 %). Over the tier: QueueWait, TimeToFirstToken and
    TimePerOutputToken in seconds (500m is half a second), KVUtilization from 0 to 1 (800m is 80 %).
    CPUUtilization and MemoryUtilization are in percent of what is requested."""
    external: ExternalMetric | None = None
    """Which metric it is, with signal External."""


class ScalingPolicy(ApiModel):
    """How much may change in how long."""

    type: Literal["Pods", "Percent"]
    """Whether value counts pods or percent of the present pods."""
    value: int = Field(ge=1, le=10_000)
    """The largest change within the period."""
    period_seconds: int = Field(ge=1, le=1800)
    """Length of the period."""


class ScalingRules(ApiModel):
    """The pace in one direction."""

    stabilization_window_seconds: int | None = Field(default=None, ge=0, le=3600)
    """How far back recommendations are looked at before acting on one."""
    select_policy: Literal["Max", "Min", "Disabled"] | None = None
    """Which policy counts when several apply; Disabled never scales in this direction."""
    policies: tuple[ScalingPolicy, ...] = Field(default=(), max_length=8)
    """Bounds of the pace. Default: those of Kubernetes."""


class ScalingBehavior(ApiModel):
    """The pace of scaling, as in autoscaling/v2."""

    scale_up: ScalingRules | None = None
    """The pace when pods are added."""
    scale_down: ScalingRules | None = None
    """The pace when pods are taken away."""


class Autoscaling(ApiModel):
    """Lets a HorizontalPodAutoscaler set the number of pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.min <= self.max",
            message="min must not exceed max: lower min or raise max",
            holds=lambda given: given.min <= given.max,
        ),
        Rule(
            cel="!has(self.metrics) || self.metrics.all(a, a.signal == 'External' || "
            "self.metrics.exists_one(b, a.signal == b.signal))",
            message="each signal but External may be given once: merge the metrics of the same "
            "signal",
            holds=lambda given: _each_once(
                [one.signal for one in given.metrics if one.signal is not Signal.EXTERNAL]
            ),
        ),
    )

    mode: Literal["Auto", "Advise"] = "Auto"
    """Auto sets the number of pods. Advise leaves it at replicas, and says in the status what Auto
    would set."""
    min: int = Field(default=1, ge=1, le=1000)
    """Fewest pods, kept even when nothing is to do."""
    max: int = Field(ge=1, le=1000)
    """Most pods, however much is to do."""
    metrics: tuple[ScalingMetric, ...] = Field(default=(), max_length=7)
    """What to scale on; with several, the one that asks for most pods counts. Default: what suits
    the tier, by its limits. encoder and prefill: StageUtilization and BacklogTokens. decode:
    TimePerOutputToken, KVUtilization and RunningRequests. fused: these three and
    StageUtilization. gateway: RunningRequests."""
    behavior: ScalingBehavior | None = None
    """The pace of scaling. Default: that of Kubernetes."""

    @property
    def acts(self) -> bool:
        """Whether it sets the number of pods, and does not only say what it would set."""
        return self.mode == "Auto"


class EncoderAutoscaling(Autoscaling):
    """Lets the encoder tier follow its load, down to no pod at all."""

    scale_to_zero_after: PositiveDuration | None = None
    """After how long without a request with pictures no encoder is kept, not even min. The first
    picture brings min back; its request waits (degraded.onEncoderLoss: Queue) or is encoded by the
    tier that prefills (EncodeInline). Default: never."""


def _each_once(signals: Sequence[Signal]) -> bool:
    return len(set(signals)) == len(signals)


_NO_METRICS: Final = "!has(self.autoscaling) || !has(self.autoscaling.metrics)"


class ScaledTier(Protocol):
    """A tier, as far as its autoscaling goes."""

    @property
    def autoscaling(self) -> Autoscaling | None:
        """What it scales on, if it does."""


def scaling_rules(tier: Tier) -> tuple[Rule, ...]:
    """What holds for the autoscaling of ``tier`` beside what holds for any."""
    known = SIGNALS[tier]
    return (_signals_rule(tier, known), *([_KV_RULE] if Signal.KV_UTILIZATION in known else []))


def _signals_rule(tier: Tier, known: Sequence[Signal]) -> Rule:
    """``tier`` scales on the signals that its pods measure."""
    listed = ", ".join(f"'{signal}'" for signal in known)
    return Rule(
        cel=f"{_NO_METRICS} || self.autoscaling.metrics.all(m, m.signal in [{listed}])",
        message=f"tier {tier} scales on {', '.join(known)}: choose one of these signals",
        holds=lambda given: all(metric.signal in known for metric in _metrics(given)),
    )


# A rule of the tiers that have it, since CEL on quantities costs much of what a definition may.
_KV_RULE: Final = Rule(
    cel=f"{_NO_METRICS} || self.autoscaling.metrics.all(m, m.signal != 'KVUtilization' || "
    "!quantity(string(m.target)).isGreaterThan(quantity('1')))",
    message="the target of KVUtilization is a part of the KV memory: write at most 1, such as "
    "800m for 80 %",
    holds=lambda given: all(
        metric.signal is not Signal.KV_UTILIZATION or parse_quantity(metric.target) <= 1
        for metric in _metrics(given)
    ),
)


def _metrics(tier: ScaledTier) -> tuple[ScalingMetric, ...]:
    return tier.autoscaling.metrics if tier.autoscaling is not None else ()
