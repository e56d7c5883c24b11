"""Cases computed by hand from the Kubernetes documentation."""

from __future__ import annotations

import pytest

from bench.autoscaling.hpa import Autoscaler, Level, Metric, Policy, Rules, Share, Utilization


@pytest.mark.parametrize(
    ("metric", "current", "wanted"),
    [
        (Share(200.0, 100.0), 1, 2),  # the documentation's example: twice the target doubles
        (Share(50.0, 100.0), 1, 1),
        (Share(230.0, 100.0), 2, 3),
        (Share(219.0, 100.0), 2, 2),  # 1.095 of the target is near enough
        (Share(221.0, 100.0), 2, 3),
        (Share(181.0, 100.0), 2, 2),
        (Share(170.0, 100.0), 2, 2),
        (Share(99.0, 100.0), 2, 1),
        (Share(0.0, 100.0), 5, 0),
        (Share(300.0, 100.0), 3, 3),
        (Share(None, 100.0), 3, None),
        (Level(0.5, 0.25), 3, 6),
        (Level(0.27, 0.25), 3, 3),
        (Level(0.28, 0.25), 3, 4),
        (Level(0.05, 0.25), 10, 2),
        (Level(None, 0.25), 3, None),
        (Utilization([80.0, 80.0], 0, 0, 40.0), 2, 4),
        (Utilization([43.0, 44.0], 0, 0, 40.0), 2, 2),
        (Utilization([], 2, 0, 40.0), 2, None),
    ],
)
def test_one_metric_asks_for_pods(metric: Metric, current: int, wanted: int | None) -> None:
    assert metric.wanted(current, current) == wanted


def test_a_mean_is_of_the_pods_that_are_ready() -> None:
    assert Level(0.5, 0.25).wanted(6, 3) == 6
    assert Level(1.0, 0.25).wanted(0, 0) == 4


def test_pods_that_were_not_measured_work_against_the_change() -> None:
    # Growing: (90 + 90 + 0) / 3 = 60 of 50, so ceil(1.2 * 3) = 4 and not ceil(1.8 * 3) = 6.
    assert Utilization([90.0, 90.0], 1, 0, 50.0).wanted(3, 3) == 4
    # Shrinking: (20 + 20 + 100) / 3 = 46.7 of 50 is near: nothing shrinks.
    assert Utilization([20.0, 20.0], 1, 0, 50.0).wanted(3, 3) == 3
    # (10 + 10 + 100) / 3 = 40 of 50: ceil(0.8 * 3) = 3.
    assert Utilization([10.0, 10.0], 1, 0, 50.0).wanted(3, 3) == 3
    # Those that do not serve yet count as idle when it grows, and not at all otherwise.
    assert Utilization([100.0, 100.0], 0, 2, 50.0).wanted(4, 2) == 4
    assert Utilization([10.0, 10.0], 0, 2, 50.0).wanted(4, 2) == 1
    # The change would turn round: it is given up.
    assert Utilization([60.0], 3, 0, 50.0).wanted(4, 4) == 4


def test_of_several_metrics_the_largest_counts_and_a_missing_one_never_shrinks() -> None:
    def decided(*metrics: Metric) -> int:
        scaler = Autoscaler(1, 10, down=Rules(0.0, (Policy("Percent", 100, 15.0),)))
        return scaler.decide(0.0, 4, 4, metrics)

    assert decided(Share(500.0, 100.0), Share(600.0, 100.0)) == 6
    assert decided(Share(600.0, 100.0), Share(None, 100.0)) == 6
    assert decided(Share(200.0, 100.0), Share(None, 100.0)) == 4
    assert decided(Share(200.0, 100.0), Share(100.0, 100.0)) == 2
    assert decided(Share(None, 100.0)) == 4


def test_a_pool_doubles_or_gains_four_in_15_seconds_whichever_is_more() -> None:
    scaler, pods, seen = Autoscaler(1, 1000), 1, []
    for look in range(5):
        pods = scaler.decide(15.0 * look, pods, pods, [Share(1e6, 100.0)])
        seen.append(pods)
    assert seen == [5, 10, 20, 40, 80]


def test_the_pace_counts_what_changed_within_its_period() -> None:
    scaler = Autoscaler(1, 100, up=Rules(0.0, (Policy("Pods", 3, 60.0),)))
    seen, pods = [], 2
    for look in range(6):
        pods = scaler.decide(15.0 * look, pods, pods, [Share(1e6, 100.0)])
        seen.append(pods)
    assert seen == [5, 5, 5, 5, 8, 8]


def test_the_smaller_of_policies_counts_when_asked_for() -> None:
    policies = (Policy("Pods", 2, 60.0), Policy("Percent", 10, 60.0))
    slow = Rules(0.0, policies, "Min")
    fast = Rules(0.0, policies)
    none = Rules(0.0, ())
    for rules, left in ((slow, 48), (fast, 45), (none, 50)):
        assert Autoscaler(1, 100, down=rules).decide(0.0, 50, 50, [Share(0.0, 1.0)]) == left


def test_a_pool_shrinks_to_the_most_that_was_asked_for_in_five_minutes() -> None:
    scaler, pods, seen = Autoscaler(1, 10), 6, {}
    for look in range(60):
        now = 15.0 * look
        pods = scaler.decide(now, pods, pods, [Share(400.0 if now < 90 else 100.0, 100.0)])
        seen[now] = pods
    # What stood at first counts for 300 s, and so does each 4 that was asked for until 75 s.
    assert (seen[285.0], seen[300.0], seen[360.0], seen[375.0]) == (6, 4, 4, 1)


def test_a_pool_grows_to_the_least_that_was_asked_for_in_its_window() -> None:
    scaler = Autoscaler(1, 10, up=Rules(60.0, (Policy("Percent", 900, 15.0),)))
    asked = [800.0, 300.0, 500.0, 500.0, 500.0, 500.0, 500.0]
    seen, pods = [], 1
    for look, total in enumerate([100.0, *asked]):
        pods = scaler.decide(15.0 * look, pods, pods, [Share(total, 100.0)])
        seen.append(pods)
    assert seen == [1, 1, 1, 1, 3, 3, 5, 5]


def test_bounds_always_hold_and_a_pool_of_none_is_left_alone() -> None:
    assert Autoscaler(2, 5).decide(0.0, 1, 1, [Share(0.0, 1.0)]) == 2
    assert Autoscaler(2, 5).decide(0.0, 9, 9, [Share(99.0, 1.0)]) == 5
    assert Autoscaler(1, 5).decide(0.0, 4, 4, [Share(99.0, 1.0)]) == 5
    assert Autoscaler(1, 5).decide(0.0, 0, 0, [Share(99.0, 1.0)]) == 0
