"""What a tier measured, from what its pods told. Pure.

Rates and means are over the last ``History`` window of each pod. A pod that answers and has nothing
to do counts as 0; a pod that does not answer counts for nothing. Per-pod signals are sums that an
autoscaler divides by its pods, so a silent pod would weigh like an idle one, and a tier whose pods
are too busy to answer would shrink: a pod that is ready and silent is therefore taken for the mean
of the others. A pod that starts is silent too, but not ready, and rightly weighs like an idle one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from triptych_contract.names import Metric, Stage, Tier

from triptych_operator.api.autoscaling import MEASURED, Signal
from triptych_operator.signals.board import TierSignals
from triptych_operator.signals.caches import cache_use
from triptych_operator.signals.history import History
from triptych_operator.signals.page import Series
from triptych_operator.signals.sources import BUSY, GAUGES, QUEUES, RATES

_RUNNING: Final = Series(Metric.RUNNING)
_WAITING: Final = Series(Metric.WAITING)
_BACKLOG: Final = Series(Metric.BACKLOG_TOKENS)
_LEASES: Final = Series(Metric.LEASES)
_WITHOUT_ENCODER: Final = Series(Metric.WITHOUT_ENCODER)
_KV_USED: Final = Series(Metric.KV_TOKENS_USED)
_KV_CAPACITY: Final = Series(Metric.KV_TOKENS_CAPACITY)
_MULTIMODAL: Final = "multimodal"
_MODALITIES: Final = ("text", _MULTIMODAL)


@dataclass(frozen=True, slots=True)
class PodTold:
    """One pod of a tier, and what it told in the last window; ``None``: it does not answer."""

    name: str
    ready: bool
    history: History | None


@dataclass(frozen=True, slots=True)
class _Answers:
    """All that one tier's signals are made of."""

    tier: Tier
    pods: Sequence[PodTold]
    gateways: Sequence[PodTold]


def tier_signals(
    tier: Tier, pods: Sequence[PodTold], gateways: Sequence[PodTold], at: float
) -> TierSignals:
    """All that ``tier`` measured until ``at``; ``gateways`` are the pods that its requests come
    through, which measure the time to the first token."""
    answers = _Answers(tier, pods, gateways)
    values = {signal: _measure(signal, answers) for signal in MEASURED[tier]}
    return TierSignals(
        tier=tier,
        at=at,
        pods=len(pods),
        answering=sum(pod.history is not None for pod in pods),
        values={signal: value for signal, value in values.items() if value is not None},
        work={pod.name: _work(pod.history) for pod in pods if pod.history is not None},
        caches=cache_use(_histories(pods)),
    )


def _measure(signal: Signal, answers: _Answers) -> float | None:
    if signal in RATES:
        return _rate(answers.pods, Series(RATES[signal]))
    if signal in GAUGES:
        return _total(answers.pods, lambda history: history.now(Series(GAUGES[signal])))
    return _OTHERS[signal](answers)


def _queue_wait_of(answers: _Answers) -> float | None:
    return queue_wait(_histories(answers.pods), QUEUES[answers.tier])


def _stage_utilization(answers: _Answers) -> float | None:
    return _rate(answers.pods, *(Series(Metric.BUSY_SECONDS, one) for one in BUSY[answers.tier]))


def _kv_utilization(answers: _Answers) -> float | None:
    told = _histories(answers.pods)
    used = sum(history.now(_KV_USED) or 0.0 for history in told)
    capacity = sum(history.now(_KV_CAPACITY) or 0.0 for history in told)
    return used / capacity if capacity else None


def _time_per_output_token(answers: _Answers) -> float | None:
    return _mean(_histories(answers.pods), Metric.TPOT_SECONDS, ("",))


def _time_to_first_token(answers: _Answers) -> float | None:
    """As the gateways measure it; of encoders that of requests with pictures."""
    told = _histories(answers.gateways)
    wanted = (_MULTIMODAL,) if answers.tier is Tier.ENCODER else _MODALITIES
    others = [one for one in _MODALITIES if one not in wanted]
    count = f"{Metric.TTFT_SECONDS}_count"
    measured = any(_grown(history, count, wanted) for history in told)
    if not measured and any(_grown(history, count, others) for history in told):
        return 0.0  # what runs is of the other kind
    return _mean(told, Metric.TTFT_SECONDS, wanted)


def _requests_without_encoder(answers: _Answers) -> float | None:
    return _total(answers.gateways, lambda history: history.now(_WITHOUT_ENCODER))


def _picture_requests_per_second(answers: _Answers) -> float | None:
    return _rate(answers.gateways, Series(f"{Metric.TTFT_SECONDS}_count", _MULTIMODAL))


_OTHERS: Final[Mapping[Signal, Callable[[_Answers], float | None]]] = {
    Signal.QUEUE_WAIT: _queue_wait_of,
    Signal.STAGE_UTILIZATION: _stage_utilization,
    Signal.KV_UTILIZATION: _kv_utilization,
    Signal.TIME_PER_OUTPUT_TOKEN: _time_per_output_token,
    Signal.TIME_TO_FIRST_TOKEN: _time_to_first_token,
    Signal.PICTURE_REQUESTS_PER_SECOND: _picture_requests_per_second,
    Signal.REQUESTS_WITHOUT_ENCODER: _requests_without_encoder,
}


def queue_wait(told: Sequence[History], queues: Sequence[Stage]) -> float | None:
    """Mean seconds that requests waited which were taken up within the window; of several queues
    on the way the longest.

    Those of a pod that took up nothing while requests waited at both ends of the window have not
    told their wait yet, but it is no less than the window, and that is what they count as.
    """
    timed = [history for history in told if history.seconds > 0]
    if not timed:
        return None
    return max(_queue_wait(timed, queue, queues) for queue in queues)


def _queue_wait(timed: Sequence[History], queue: Stage, queues: Sequence[Stage]) -> float:
    waited = requests = 0.0
    for history in timed:
        waited += history.increase(Series(f"{Metric.STAGE_SECONDS}_sum", queue))
        requests += history.increase(Series(f"{Metric.STAGE_SECONDS}_count", queue))
        if not any(_taken_up(history, one) for one in queues):
            stuck = history.least(_WAITING)
            waited += stuck * history.seconds
            requests += stuck
    return waited / requests if requests else 0.0


def _taken_up(history: History, queue: Stage) -> float:
    return history.increase(Series(f"{Metric.STAGE_SECONDS}_count", queue))


def _mean(told: Sequence[History], histogram: str, labels: Sequence[str]) -> float | None:
    """Mean of what a histogram took in within the window; 0 when there was nothing to measure.
    Requests that ran all along and gave nothing to measure hang, or are between two measures: then
    there is no telling."""
    timed = [history for history in told if history.seconds > 0]
    total = sum(_grown(history, f"{histogram}_sum", labels) for history in timed)
    count = sum(_grown(history, f"{histogram}_count", labels) for history in timed)
    if count:
        return total / count
    busy = any(history.least(_RUNNING) for history in timed)
    return 0.0 if timed and not busy else None


def _grown(history: History, sample: str, labels: Sequence[str]) -> float:
    return sum(history.increase(Series(sample, label)) for label in labels)


def _rate(pods: Sequence[PodTold], *series: Series) -> float | None:
    """What the pods did together in the time that the tier has been watched, at most the window.

    A pod that came in the midst of it has done its part in a part of it. By its own time it would
    add to what the others did before it took their work over, and a tier that grows would seem to
    have more to do for it.
    """
    seconds = max((pod.history.seconds for pod in pods if pod.history is not None), default=0.0)
    if seconds <= 0:
        return None
    return _total(pods, lambda history: sum(map(history.increase, series)) / seconds)


def _total(pods: Sequence[PodTold], measure: Callable[[History], float | None]) -> float | None:
    """Sum over the pods, with the mean of the ready ones for each that is ready and silent."""
    known: list[float] = []
    of_ready: list[float] = []
    silent = 0
    for pod in pods:
        value = measure(pod.history) if pod.history is not None else None
        if value is not None:
            known.append(value)
            of_ready += [value] if pod.ready else []
        elif pod.history is None and pod.ready:
            silent += 1
    if not known:
        return None
    return sum(known) + (silent * sum(of_ready) / len(of_ready) if of_ready else 0.0)


def _work(history: History) -> float:
    """Requests that a pod has in hand, and leases on tensors that others may still fetch."""
    return sum(history.now(series) or 0.0 for series in (_RUNNING, _WAITING, _LEASES))


def _histories(pods: Sequence[PodTold]) -> list[History]:
    return [pod.history for pod in pods if pod.history is not None]
