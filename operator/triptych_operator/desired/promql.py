"""The signals as queries of Prometheus, one series per resource. Pure.

The same measures as ``signals.measures`` takes from the pods themselves; docs/metrics.md has both.
Pods have labels ``triptych_service`` and ``triptych_tier`` there, by ``prometheus.pod_monitor``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from triptych_contract.names import Metric, Stage, Tier

from triptych_operator.api.autoscaling import Signal
from triptych_operator.desired.naming import PROMETHEUS_SERVICE, PROMETHEUS_TIER
from triptych_operator.signals.sources import BUSY, GAUGES, QUEUES, RATES

_Where = tuple[str, ...]
_WINDOW: Final = "1m"  # at least two rounds of Prometheus, or there is no rate
_BY: Final = f"namespace, {PROMETHEUS_SERVICE}"
_OF_PICTURES: Final = 'modality="multimodal"'


def query(tier: Tier, signal: Signal, *where: str) -> str:
    """What ``tier`` measures of ``signal``: a sum over its pods of what is shared, else a mean.

    Args:
        where: label matchers, such as ``namespace="n"``; none: of every resource.

    Raises:
        KeyError: the tier does not measure it.
    """
    if signal in RATES:
        return _sum(_rate(RATES[signal], _of_tier(tier, where)))
    if signal in GAUGES:
        return _sum(_series(GAUGES[signal], _of_tier(tier, where)))
    return _OTHERS[signal](tier, where)


def demand(*where: str) -> str:
    """Above 0 while pictures ask for an encoder."""
    signals = (Signal.PICTURE_REQUESTS_PER_SECOND, Signal.REQUESTS_WITHOUT_ENCODER)
    return " + ".join(query(Tier.ENCODER, signal, *where) for signal in signals)


def _queue_wait(tier: Tier, where: _Where) -> str:
    waits = _mean(
        Metric.STAGE_SECONDS, (_of(QUEUES[tier]), *_of_tier(tier, where)), f"{_BY}, stage"
    )
    return f"max by ({_BY}) ({waits})"


def _stage_utilization(tier: Tier, where: _Where) -> str:
    return _sum(_rate(Metric.BUSY_SECONDS, (_of(BUSY[tier]), *_of_tier(tier, where))))


def _kv_utilization(tier: Tier, where: _Where) -> str:
    own = _of_tier(tier, where)
    used, capacity = Metric.KV_TOKENS_USED, Metric.KV_TOKENS_CAPACITY
    return f"{_sum(_series(used, own))} / {_sum(_series(capacity, own))}"


def _time_per_output_token(tier: Tier, where: _Where) -> str:
    return _mean(Metric.TPOT_SECONDS, _of_tier(tier, where))


def _time_to_first_token(tier: Tier, where: _Where) -> str:
    """As the gateways measure it; of encoders that of requests with pictures."""
    pictures = (_OF_PICTURES,) if tier is Tier.ENCODER else ()
    return _mean(Metric.TTFT_SECONDS, (*pictures, *_of_tier(Tier.GATEWAY, where)))


def _picture_requests(_: Tier, where: _Where) -> str:
    gateways = _of_tier(Tier.GATEWAY, where)
    return _sum(_rate(f"{Metric.TTFT_SECONDS}_count", (_OF_PICTURES, *gateways)))


def _without_encoder(_: Tier, where: _Where) -> str:
    return _sum(_series(Metric.WITHOUT_ENCODER, _of_tier(Tier.GATEWAY, where)))


_OTHERS: Final[Mapping[Signal, Callable[[Tier, _Where], str]]] = {
    Signal.QUEUE_WAIT: _queue_wait,
    Signal.STAGE_UTILIZATION: _stage_utilization,
    Signal.KV_UTILIZATION: _kv_utilization,
    Signal.TIME_PER_OUTPUT_TOKEN: _time_per_output_token,
    Signal.TIME_TO_FIRST_TOKEN: _time_to_first_token,
    Signal.PICTURE_REQUESTS_PER_SECOND: _picture_requests,
    Signal.REQUESTS_WITHOUT_ENCODER: _without_encoder,
}


def _of_tier(tier: Tier, where: _Where) -> _Where:
    return (f'{PROMETHEUS_TIER}="{tier}"', *where)


def _of(stages: tuple[Stage, ...]) -> str:
    return f'stage=~"{"|".join(stages)}"'


def _mean(histogram: str, where: _Where, by: str = _BY) -> str:
    """Mean of what came within the window; 0 when nothing did, but nothing without any pod."""
    total = _sum(_rate(f"{histogram}_sum", where), by)
    count = _sum(_rate(f"{histogram}_count", where), by)
    return f"({total} / ({count} > 0) or 0 * {count})"


def _sum(series: str, by: str = _BY) -> str:
    return f"sum by ({by}) ({series})"


def _rate(counter: str, where: _Where) -> str:
    return f"rate({_series(counter, where)}[{_WINDOW}])"


def _series(name: str, where: _Where) -> str:
    return f"{name}{{{', '.join(where)}}}"
