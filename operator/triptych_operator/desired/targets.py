"""What a tier scales on: the metrics of its resource, or those that suit its limits. Pure."""

from __future__ import annotations

from typing import Final

from triptych_contract.names import Tier

from triptych_operator.api.autoscaling import OVER_THE_TIER, ScalingMetric, Signal
from triptych_operator.api.service import ServiceSpec

# Chosen by simulation, bench/autoscaling; docs/autoscaling.md gives the reasons. A wait is no
# default: it has no upper bound, and by its ratio to a target a burst would ask for every pod.
STAGE_UTILIZATION: Final = "600m"
DECODE_SECONDS: Final = "80m"  # twice as fast as people read
KV_UTILIZATION: Final = "800m"
CPU_PERCENT: Final = "70"
_BUSY: Final = 0.75  # of what a pod may run at a time: room for what comes while a pod starts
_GATEWAY_BUSY: Final = 0.5  # a gateway that is full refuses requests, which no queue softens


def metrics_of(
    spec: ServiceSpec, tier: Tier, *, measured: bool = True
) -> tuple[ScalingMetric, ...]:
    """What ``tier`` scales on, given or by default.

    Args:
        measured: somebody serves Triptych's own signals; otherwise the default is the CPU alone.
    """
    autoscaling = spec.tier(tier).autoscaling
    given = autoscaling.metrics if autoscaling is not None else ()
    if given:
        return given
    return _defaults(spec, tier) if measured else (_metric(Signal.CPU_UTILIZATION, CPU_PERCENT),)


def is_shared(metric: ScalingMetric) -> bool:
    """Whether the target is each pod's share of the value, and not the value's own."""
    if metric.external is not None:
        return metric.external.per == "Pod"
    return metric.signal not in OVER_THE_TIER


def _defaults(spec: ServiceSpec, tier: Tier) -> tuple[ScalingMetric, ...]:
    match tier:
        case Tier.ENCODER:
            # Half a batch waiting in each pod: the next batch is as good as full.
            backlog = spec.encoder.limits.batch_visual_tokens // 2
            return (
                _metric(Signal.STAGE_UTILIZATION, STAGE_UTILIZATION),
                _metric(Signal.BACKLOG_TOKENS, backlog),
            )
        case Tier.PREFILL:
            # An eighth of what a pod takes before it refuses more.
            backlog = spec.prefill.limits.queue_tokens // 8
            return (
                _metric(Signal.STAGE_UTILIZATION, STAGE_UTILIZATION),
                _metric(Signal.BACKLOG_TOKENS, backlog),
            )
        case Tier.DECODE:
            return _of_answers(spec.decode.limits.max_running)
        case Tier.FUSED:
            busy = _metric(Signal.STAGE_UTILIZATION, STAGE_UTILIZATION)
            return (busy, *_of_answers(spec.fused.limits.max_running))
        case Tier.GATEWAY:
            running = spec.gateway.limits.max_concurrent * _GATEWAY_BUSY
            return (_metric(Signal.RUNNING_REQUESTS, running),)


def _of_answers(max_running: int) -> tuple[ScalingMetric, ...]:
    return (
        _metric(Signal.TIME_PER_OUTPUT_TOKEN, DECODE_SECONDS),
        _metric(Signal.KV_UTILIZATION, KV_UTILIZATION),
        _metric(Signal.RUNNING_REQUESTS, max_running * _BUSY),
    )


def _metric(signal: Signal, target: str | float) -> ScalingMetric:
    text = target if isinstance(target, str) else str(max(1, round(target)))
    return ScalingMetric(signal=signal, target=text)
