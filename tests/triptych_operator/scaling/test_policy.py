from typing import Any

from mms_builders import service
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.scaling.policy import Target, policy_of, ratios

RESTING = {"min": 2, "max": 5, "scaleToZeroAfter": "1m30s"}


def test_a_tier_without_autoscaling_is_measured_by_what_it_would_scale_on() -> None:
    policy = policy_of(service(tiers__decode__replicas=3)).of(Tier.DECODE)
    assert policy is not None
    assert (policy.scaled, policy.acts) == (False, False)
    assert Target(Signal.KV_UTILIZATION, 0.8, shared=False) in policy.targets
    assert Target(Signal.RUNNING_REQUESTS, 48.0, shared=True) in policy.targets


def test_bounds_and_modes_are_those_of_the_resource() -> None:
    given: dict[str, Any] = {"mode": "Advise", "min": 2, "max": 5}
    policy = policy_of(service(tiers__prefill__autoscaling=given)).of(Tier.PREFILL)
    assert policy is not None
    assert (policy.scaled, policy.acts, policy.min, policy.max) == (True, False, 2, 5)


def test_encoders_rest_when_they_are_scaled_and_not_when_that_is_advice() -> None:
    queued = {"degraded__onEncoderLoss": "Queue"}
    assert policy_of(service(tiers__encoder__autoscaling=RESTING, **queued)).rest_after == 90.0
    advised = {**RESTING, "mode": "Advise"}
    assert policy_of(service(tiers__encoder__autoscaling=advised, **queued)).rest_after is None
    assert policy_of(service()).rest_after is None


def test_a_topology_has_no_policy_for_tiers_that_it_has_not() -> None:
    assert policy_of(service(topology="EncodeSplit")).of(Tier.DECODE) is None


def test_what_is_shared_is_compared_by_pod_and_what_is_missing_not_at_all() -> None:
    targets = (
        Target(Signal.BACKLOG_TOKENS, 100.0, shared=True),
        Target(Signal.QUEUE_WAIT, 0.5, shared=False),
        Target(Signal.IMAGES_PER_SECOND, 1.0, shared=True),
    )
    values = {Signal.BACKLOG_TOKENS: 800.0, Signal.QUEUE_WAIT: 1.0}
    assert ratios(targets, values, pods=4) == [2.0, 2.0]
    assert ratios(targets, values, pods=0) == [8.0, 2.0]
