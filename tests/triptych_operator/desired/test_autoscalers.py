from typing import Any

import pytest
from mms_builders import service
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import MEASURED
from triptych_operator.desired import naming
from triptych_operator.desired.autoscalers import autoscaler
from triptych_operator.desired.platform import Metrics, Platform


def made(tier: str, metrics_by: Metrics = Metrics.EMBEDDED, **autoscaling: Any) -> Any:
    resource = service(
        topology="EncodeSplit" if tier == "fused" else "FullSplit",
        **{f"tiers__{tier}__autoscaling": {"max": 9, **autoscaling}},
    )
    given = resource.spec.tier(Tier(tier)).autoscaling
    assert given is not None
    return autoscaler(resource, Tier(tier), given, Platform("worker:1", metrics=metrics_by))["spec"]


@pytest.mark.parametrize(
    ("signal", "target", "expected"),
    [
        ("BacklogTokens", 20000, {"type": "AverageValue", "averageValue": "20k"}),
        ("InputTokensPerSecond", "1k", {"type": "AverageValue", "averageValue": "1k"}),
        ("QueueWait", "500m", {"type": "Value", "value": "500m"}),
        ("TimeToFirstToken", 2, {"type": "Value", "value": "2"}),
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


@pytest.mark.parametrize(
    ("signal", "name"), [("CPUUtilization", "cpu"), ("MemoryUtilization", "memory")]
)
def test_what_the_cluster_measures_is_a_percentage_of_what_is_requested(
    signal: str, name: str
) -> None:
    [metric] = made("decode", metrics=[{"signal": signal, "target": "70"}])["metrics"]
    target = {"type": "Utilization", "averageUtilization": 70}
    assert metric == {"type": "Resource", "resource": {"name": name, "target": target}}


@pytest.mark.parametrize(
    ("external", "expected"),
    [
        (
            {"name": "depth"},
            {"metric": {"name": "depth"}, "target": {"type": "AverageValue", "averageValue": "5"}},
        ),
        (
            {"name": "age", "selector": {"queue": "a"}, "per": "Tier"},
            {
                "metric": {"name": "age", "selector": {"matchLabels": {"queue": "a"}}},
                "target": {"type": "Value", "value": "5"},
            },
        ),
    ],
)
def test_a_metric_of_others_is_asked_for_as_it_is_named(
    external: dict[str, Any], expected: dict[str, Any]
) -> None:
    given = {"signal": "External", "target": 5, "external": external}
    [metric] = made("decode", metrics=[given])["metrics"]
    assert metric == {"type": "External", "external": expected}


def test_prometheus_is_asked_by_a_label_that_it_can_hold() -> None:
    [metric] = made("prefill", Metrics.PROMETHEUS, metrics=[{"signal": "QueueWait", "target": 1}])[
        "metrics"
    ]
    selector = metric["external"]["metric"]["selector"]
    assert selector == {"matchLabels": {"triptych_service": "shapes"}}


def test_without_metrics_a_tier_has_those_that_suit_it() -> None:
    names = [metric["external"]["metric"]["name"] for metric in made("encoder")["metrics"]]
    assert names == ["triptych_encoder_stage_utilization", "triptych_encoder_backlog_tokens"]


def test_where_nobody_serves_signals_a_tier_scales_on_its_cpu() -> None:
    [metric] = made("encoder", Metrics.NONE)["metrics"]
    assert metric["resource"]["name"] == "cpu"


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
    names = [naming.external_metric(tier, signal) for signal in MEASURED[tier]]
    assert len(set(names)) == len(names)
    assert all(name.startswith(f"triptych_{tier}_") for name in names)
