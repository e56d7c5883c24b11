"""What the HorizontalPodAutoscaler would do, case by case of its documentation."""

from dataclasses import replace

import pytest
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.scaling.advice import Advice, advice
from triptych_operator.scaling.policy import Target, TierPolicy

BACKLOG, WAIT, CPU = Signal.BACKLOG_TOKENS, Signal.QUEUE_WAIT, Signal.CPU_UTILIZATION


def policy(*signals: Signal, least: int = 1, most: int = 100) -> TierPolicy:
    known = {
        BACKLOG: Target(BACKLOG, 100.0, shared=True),
        WAIT: Target(WAIT, 0.5, shared=False),
        CPU: Target(CPU, 70.0, shared=False),
    }
    targets = tuple(known[one] for one in signals)
    return TierPolicy(Tier.PREFILL, targets, scaled=True, min=least, max=most)


@pytest.mark.parametrize(
    ("total", "current", "pods"),
    [
        (400.0, 4, 4),
        (439.0, 4, 4),  # within the tolerance
        (361.0, 4, 4),
        (441.0, 4, 5),
        (359.0, 4, 4),  # 3.59 pods
        (290.0, 4, 3),
        (0.0, 4, 1),  # the fewest
        (1e9, 4, 100),  # the most
        (250.0, 0, 3),  # from nothing, without a tolerance
    ],
)
def test_what_is_shared_asks_for_pods_that_each_have_their_target(
    total: float, current: int, pods: int
) -> None:
    assert advice(policy(BACKLOG), {BACKLOG: total}, current, current).pods == pods


@pytest.mark.parametrize(
    ("value", "current", "ready", "pods"),
    [
        (0.5, 4, 4, 4),
        (0.549, 4, 4, 4),
        (1.0, 4, 4, 8),
        (1.0, 4, 3, 6),  # by the pods that are ready
        (0.1, 4, 4, 1),
        (0.0, 4, 4, 1),
    ],
)
def test_a_mean_asks_for_as_many_times_the_ready_pods_as_it_is_from_its_target(
    value: float, current: int, ready: int, pods: int
) -> None:
    assert advice(policy(WAIT), {WAIT: value}, current, ready).pods == pods


def test_the_signal_that_asks_for_most_counts() -> None:
    found = advice(policy(BACKLOG, WAIT), {BACKLOG: 900.0, WAIT: 1.0}, 4, 4)
    assert found == Advice(9, BACKLOG)


def test_a_signal_that_is_missing_keeps_pods_and_does_not_keep_from_adding_some() -> None:
    assert advice(policy(WAIT, CPU), {WAIT: 0.0}, 4, 4) == Advice(4, None, (CPU,))
    assert advice(policy(WAIT, CPU), {WAIT: 1.0}, 4, 4) == Advice(8, WAIT, (CPU,))
    assert advice(policy(WAIT), {}, 4, 4) == Advice(4, None, (WAIT,))


def test_metrics_that_had_no_say_are_named_once_each() -> None:
    others = tuple(Target(Signal.EXTERNAL, target, shared=True) for target in (1.0, 2.0))
    known = policy(CPU, WAIT, BACKLOG)
    found = advice(replace(known, targets=(*known.targets, *others)), {BACKLOG: 900.0}, 4, 4)
    assert found == Advice(9, BACKLOG, (CPU, WAIT, Signal.EXTERNAL))


def test_bounds_hold_whatever_is_missing() -> None:
    assert advice(policy(WAIT, least=6), {}, 4, 4).pods == 6
    assert advice(policy(WAIT, most=3), {}, 4, 4).pods == 3
