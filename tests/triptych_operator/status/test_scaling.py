from collections.abc import Mapping
from typing import Any

import pytest
from mms_builders import service
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.api.status import ScalingStatus, SignalStatus
from triptych_operator.observed.snapshot import Pod, Snapshot, TierSnapshot
from triptych_operator.scaling.policy import policy_of
from triptych_operator.signals.board import TierSignals
from triptych_operator.status.scaling import Said, is_news, said_of

SCALED: dict[str, Any] = {
    "max": 9,
    "metrics": [
        {"signal": "BacklogTokens", "target": "1k"},
        {"signal": "QueueWait", "target": "500m"},
        {"signal": "CPUUtilization", "target": 70},
    ],
}
E, P = Tier.ENCODER, Tier.PREFILL
STANDING = Snapshot(
    (TierSnapshot(P, True, 2, pods=(Pod("a", "r", ready=True), Pod("b", "r", ready=True))),)
)


def measured(tier: Tier, values: Mapping[Signal, float]) -> dict[Tier, TierSignals]:
    return {tier: TierSignals(tier, 0.0, 2, 2, values)}


NOTHING = Said()


def said(values: Mapping[Signal, float], mode: str = "Auto", previous: Said = NOTHING) -> Said:
    policy = policy_of(service(tiers__prefill__autoscaling={**SCALED, "mode": mode}))
    return said_of(policy, measured(P, values), STANDING, previous)


def test_signals_are_told_by_pod_or_over_the_tier_beside_their_targets() -> None:
    [tier] = said({Signal.BACKLOG_TOKENS: 4321.0, Signal.QUEUE_WAIT: 0.25}).scaling
    assert tier.signals == (
        SignalStatus(name=Signal.BACKLOG_TOKENS, value="2160", target="1000"),
        SignalStatus(name=Signal.QUEUE_WAIT, value="0.25", target="0.5"),
    )
    assert (tier.advised, tier.advised_by) == (None, None)


def test_advice_tells_pods_and_the_signal_that_asks_for_them() -> None:
    busy = {Signal.BACKLOG_TOKENS: 6000.0, Signal.QUEUE_WAIT: 0.25}
    [tier] = said(busy, "Advise").scaling
    assert (tier.advised, tier.advised_by) == (6, Signal.BACKLOG_TOKENS)
    assert tier.advised_without == (Signal.CPU_UTILIZATION,), "which others measure"
    [tier] = said({Signal.QUEUE_WAIT: 0.0}, "Advise").scaling
    assert (tier.advised, tier.advised_by) == (2, None), "signals that are missing keep pods"
    assert tier.advised_without == (Signal.BACKLOG_TOKENS, Signal.CPU_UTILIZATION)


def test_advice_by_all_metrics_names_none_that_is_missing() -> None:
    policy = policy_of(service(tiers__prefill__autoscaling={"max": 9, "mode": "Advise"}))
    values = {Signal.STAGE_UTILIZATION: 1.8, Signal.BACKLOG_TOKENS: 0.0}
    [tier] = said_of(policy, measured(P, values), STANDING, NOTHING).scaling
    assert (tier.advised, tier.advised_without) == (3, None)


def test_the_tier_that_limits_is_named_and_keeps_to_it() -> None:
    assert said({Signal.QUEUE_WAIT: 0.5}).limiting_tier is None
    assert said({Signal.QUEUE_WAIT: 0.6}).limiting_tier is P
    assert said({Signal.QUEUE_WAIT: 0.5}, previous=Said(P)).limiting_tier is P


def test_of_a_tier_that_is_not_scaled_only_the_limit_is_told() -> None:
    policy = policy_of(service())
    found = said_of(policy, measured(E, {Signal.BACKLOG_TOKENS: 1e6}), STANDING, Said())
    assert found == Said(E, ())


def test_of_what_cannot_be_read_nothing_is_told() -> None:
    policy = policy_of(service(tiers__prefill__autoscaling=SCALED))
    assert said_of(policy, {}, STANDING, Said(P)) == Said()
    assert said({}) == Said()


def telling(
    value: str,
    *,
    target: str = "0.5",
    advised: int | None = None,
    without: tuple[Signal, ...] | None = None,
) -> Said:
    signal = SignalStatus(name=Signal.QUEUE_WAIT, value=value, target=target)
    return Said(
        None, (ScalingStatus(name=P, signals=(signal,), advised=advised, advised_without=without),)
    )


@pytest.mark.parametrize(
    ("new", "old", "news"),
    [
        (telling("0.5"), telling("0.5"), False),
        (telling("0.04"), telling("0"), False),  # less than a tenth of the target
        (telling("0.06"), telling("0"), True),
        (telling("2.1"), telling("2"), False),  # less than a tenth of the value
        (telling("2.3"), telling("2"), True),
        (telling("0.5", target="1"), telling("0.5"), True),
        (telling("0.5", advised=3), telling("0.5", advised=2), True),
        (telling("0.5", without=(Signal.EXTERNAL,)), telling("0.5"), True),
        (telling("0.5"), Said(), True),
        (Said(), telling("0.5"), True),
        (Said(E), Said(P), True),
    ],
)
def test_only_what_has_changed_by_much_is_worth_a_write(new: Said, old: Said, news: bool) -> None:
    assert is_news(new, old) is news
