from typing import Any

import pytest
from mms_builders import service
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import OF_THE_CLUSTER, SIGNALS
from triptych_operator.desired.targets import metrics_of


def targets(tier: Tier, *, measured: bool = True, **changes: Any) -> dict[str, str]:
    topology = "EncodeSplit" if tier is Tier.FUSED else "FullSplit"
    spec = service(topology=topology, **changes).spec
    metrics = metrics_of(spec, tier, measured=measured)
    return {one.signal.value: one.target for one in metrics}


def test_what_is_given_counts_alone() -> None:
    given = {"max": 2, "metrics": [{"signal": "ImagesPerSecond", "target": "3"}]}
    assert targets(Tier.ENCODER, tiers__encoder__autoscaling=given) == {"ImagesPerSecond": "3"}
    with_cpu_alone = targets(Tier.ENCODER, measured=False, tiers__encoder__autoscaling=given)
    assert with_cpu_alone == {"ImagesPerSecond": "3"}


def test_defaults_follow_the_limits_of_the_pods() -> None:
    small = {"maxRunning": 8, "queueTokens": 800}
    pace = {"TimePerOutputToken": "80m"}
    assert targets(Tier.DECODE) == pace | {"KVUtilization": "800m", "RunningRequests": "48"}
    decode = targets(Tier.DECODE, tiers__decode__limits=small)
    assert decode == pace | {"KVUtilization": "800m", "RunningRequests": "6"}
    prefill = targets(Tier.PREFILL, tiers__prefill__limits=small)
    assert prefill == {"StageUtilization": "600m", "BacklogTokens": "100"}


def test_a_default_is_at_least_one_of_what_is_counted() -> None:
    limits = {"maxRunning": 1, "queueTokens": 1}
    assert targets(Tier.DECODE, tiers__decode__limits=limits)["RunningRequests"] == "1"
    assert targets(Tier.PREFILL, tiers__prefill__limits=limits)["BacklogTokens"] == "1"


@pytest.mark.parametrize("tier", list(Tier))
def test_defaults_are_signals_of_the_tier_that_any_cluster_can_have(tier: Tier) -> None:
    found = targets(tier)
    assert set(found) <= {signal.value for signal in SIGNALS[tier]}
    assert not set(found) & {signal.value for signal in OF_THE_CLUSTER}
    assert targets(tier, measured=False) == {"CPUUtilization": "70"}


@pytest.mark.parametrize("tier", list(Tier))
def test_no_default_is_a_wait_whose_ratio_to_its_target_has_no_bound(tier: Tier) -> None:
    assert not set(targets(tier)) & {"QueueWait", "TimeToFirstToken"}
