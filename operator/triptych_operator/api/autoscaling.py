"""``spec.tiers.*.autoscaling``: bounds, signals and pace of a tier's HorizontalPodAutoscaler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, Final, Literal, Protocol

from pydantic import Field
from triptych_contract.names import Tier

from triptych_operator.api.quantities import PositiveQuantity, is_whole, parse_quantity
from triptych_operator.api.rules import ApiModel, Rule


class Signal(StrEnum):
    """What a tier can scale on."""

    CPU_UTILIZATION = "CPUUtilization"
    IMAGES_PER_SECOND = "ImagesPerSecond"
    VISUAL_TOKENS_PER_SECOND = "VisualTokensPerSecond"
    INPUT_TOKENS_PER_SECOND = "InputTokensPerSecond"
    QUEUE_WAIT = "QueueWait"
    BACKLOG_TOKENS = "BacklogTokens"
    RUNNING_REQUESTS = "RunningRequests"
    KV_UTILIZATION = "KVUtilization"
    TIME_PER_OUTPUT_TOKEN = "TimePerOutputToken"  # noqa: S105 - a measure, no secret


_ENCODE: Final = (
    Signal.IMAGES_PER_SECOND,
    Signal.VISUAL_TOKENS_PER_SECOND,
    Signal.QUEUE_WAIT,
    Signal.BACKLOG_TOKENS,
)
_PREFILL: Final = (Signal.INPUT_TOKENS_PER_SECOND, Signal.QUEUE_WAIT, Signal.BACKLOG_TOKENS)
_DECODE: Final = (Signal.RUNNING_REQUESTS, Signal.KV_UTILIZATION, Signal.TIME_PER_OUTPUT_TOKEN)

SIGNALS: Final[Mapping[Tier, tuple[Signal, ...]]] = {
    Tier.ENCODER: (Signal.CPU_UTILIZATION, *_ENCODE),
    Tier.PREFILL: (Signal.CPU_UTILIZATION, *_PREFILL),
    Tier.DECODE: (Signal.CPU_UTILIZATION, *_DECODE),
    Tier.FUSED: (Signal.CPU_UTILIZATION, *_PREFILL, *_DECODE),
    Tier.GATEWAY: (Signal.CPU_UTILIZATION, Signal.RUNNING_REQUESTS),
}


class ScalingMetric(ApiModel):
    """One signal and the value to keep it at."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.signal != 'CPUUtilization' || quantity(string(self.target)).isInteger()",
            message="the target of CPUUtilization is in percent of the requested CPU: write a "
            "whole number such as 80",
            holds=lambda given: (
                given.signal is not Signal.CPU_UTILIZATION or is_whole(given.target)
            ),
        ),
    )

    signal: Signal
    """What is measured. Every tier has CPUUtilization, which works in every cluster; the others
    need an external metrics API that serves Triptych's signals. encoder: ImagesPerSecond,
    VisualTokensPerSecond, QueueWait, BacklogTokens. prefill: InputTokensPerSecond, QueueWait,
    BacklogTokens. decode: RunningRequests, KVUtilization, TimePerOutputToken. fused: those of
    prefill and decode. gateway: RunningRequests."""
    target: PositiveQuantity
    """Value to keep the signal at. Per pod: ImagesPerSecond, VisualTokensPerSecond,
    InputTokensPerSecond, BacklogTokens, RunningRequests. Over the tier: QueueWait and
    TimePerOutputToken in seconds (500m is half a second), KVUtilization from 0 to 1 (800m is
    80 %). CPUUtilization is in percent of the requested CPU."""


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
            cel="self.metrics.all(a, self.metrics.exists_one(b, a.signal == b.signal))",
            message="each signal may be given once: merge the metrics of the same signal",
            holds=lambda given: (
                len({metric.signal for metric in given.metrics}) == len(given.metrics)
            ),
        ),
    )

    min: int = Field(default=1, ge=1, le=1000)
    """Fewest pods, kept even when nothing is to do."""
    max: int = Field(ge=1, le=1000)
    """Most pods, however much is to do."""
    metrics: tuple[ScalingMetric, ...] = Field(min_length=1, max_length=7)
    """What to scale on; with several, the one that asks for most pods counts."""
    behavior: ScalingBehavior | None = None
    """The pace of scaling. Default: that of Kubernetes."""


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
        cel=f"!has(self.autoscaling) || self.autoscaling.metrics.all(m, m.signal in [{listed}])",
        message=f"tier {tier} scales on {', '.join(known)}: choose one of these signals",
        holds=lambda given: all(metric.signal in known for metric in _metrics(given)),
    )


# A rule of the tiers that have it, since CEL on quantities costs much of what a definition may.
_KV_RULE: Final = Rule(
    cel="!has(self.autoscaling) || self.autoscaling.metrics.all(m, m.signal != 'KVUtilization' || "
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
