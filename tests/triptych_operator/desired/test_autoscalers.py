from typing import Any

import pytest
from mms_builders import service
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import SIGNALS, Signal
from triptych_operator.desired import naming
from triptych_operator.desired.autoscalers import autoscaler


def made(tier: str, **autoscaling: Any) -> Any:
    resource = service(
        topology="EncodeSplit" if tier == "fused" else "FullSplit",
        **{f"tiers__{tier}__autoscaling": {"max": 9, **autoscaling}},
    )
    given = resource.spec.tier(Tier(tier)).autoscaling
    assert given is not None
    return autoscaler(resource, Tier(tier), given)["spec"]


@pytest.mark.parametrize(
    ("signal", "target", "expected"),
    [
        ("BacklogTokens", 20000, {"type": "AverageValue", "averageValue": "20k"}),
        ("InputTokensPerSecond", "1k", {"type": "AverageValue", "averageValue": "1k"}),
        ("QueueWait", "500m", {"type": "Value", "value": "500m"}),
    ],
)
def test_what_adds_up_is_shared_by_the_pods_and_what_does_not_is_compared_whole(
    signal: str, target: int | str, expected: dict[str, str]
) -> None:
    [metric] = made("prefill", metrics=[{"signal": signal, "target": target}])["metrics"]
    assert metric["type"] == "External"
    assert metric["external"]["target"] == expected
    assert metric["external"]["metric"]["selector"] == {
        "matchLabels": {"app.kubernetes.io/instance": "shapes"}
    }


def test_cpu_is_a_percentage_of_what_is_requested() -> None:
    [metric] = made("decode", metrics=[{"signal": "CPUUtilization", "target": "70"}])["metrics"]
    assert metric["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}


def test_the_pace_is_passed_on_as_given_and_nothing_is_made_up() -> None:
    metrics = [{"signal": "CPUUtilization", "target": 70}]
    policies = [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    behavior = {"scaleUp": {"selectPolicy": "Disabled"}, "scaleDown": {"policies": policies}}
    assert "behavior" not in made("decode", metrics=metrics)
    assert made("decode", metrics=metrics, behavior=behavior)["behavior"] == behavior


def test_no_policies_are_those_of_kubernetes() -> None:
    metrics = [{"signal": "CPUUtilization", "target": 70}]
    behavior = {"scaleUp": {"policies": []}}
    assert made("decode", metrics=metrics, behavior=behavior)["behavior"] == {"scaleUp": {}}


def test_a_percentage_that_no_pod_reaches_is_one_that_the_field_holds() -> None:
    [metric] = made("decode", metrics=[{"signal": "CPUUtilization", "target": "999999999k"}])[
        "metrics"
    ]
    assert metric["resource"]["target"]["averageUtilization"] == 2**31 - 1


@pytest.mark.parametrize("tier", list(Tier))
def test_every_signal_of_a_tier_has_a_name_of_its_own_in_the_metrics_api(tier: Tier) -> None:
    names = [
        naming.external_metric(tier, signal)
        for signal in SIGNALS[tier]
        if signal is not Signal.CPU_UTILIZATION
    ]
    assert len(set(names)) == len(names)
    assert all(name.startswith(f"triptych_{tier}_") for name in names)
