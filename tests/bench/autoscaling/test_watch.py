from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from triptych_contract.names import Tier

from bench.autoscaling.watch import Cluster, Reading, TierReading, Watch, reading


def labelled(kind: str, tier: str, **parts: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": tier}
    return {"kind": kind, "metadata": {"labels": labels}, "status": {}, **parts}


def autoscaler(tier: str, target: dict[str, str], current: dict[str, str]) -> dict[str, Any]:
    return labelled(
        "HorizontalPodAutoscaler",
        tier,
        spec={"metrics": [{"type": "External", "external": {"target": target}}]},
        status={
            "desiredReplicas": 3,
            "currentReplicas": 2,
            "currentMetrics": [{"type": "External", "external": {"current": current}}],
        },
    )


@pytest.mark.parametrize(
    ("target", "current"),
    [
        ({"averageValue": "200"}, {"averageValue": "250"}),
        ({"averageValue": "2"}, {"averageValue": "2500m"}),
        ({"value": "400m"}, {"value": "500m"}),
    ],
)
def test_a_signal_is_told_in_pods_that_it_asks_for(
    target: dict[str, str], current: dict[str, str]
) -> None:
    found = reading(
        7.0,
        [
            autoscaler("prefill", target, current),
            labelled("Deployment", "prefill", status={"readyReplicas": 1}),
            labelled("Deployment", "gateway", status={"readyReplicas": 1}),
        ],
    )
    assert found.at == 7.0
    assert found.tiers == {Tier.PREFILL: TierReading(desired=3, ready=1, load=2.5)}


def test_what_was_never_measured_is_no_value() -> None:
    spec = {"metrics": [{"type": "External", "external": {"target": {"averageValue": "2"}}}]}
    never = {"currentReplicas": 1, "desiredReplicas": 0, "currentMetrics": [{"type": ""}]}
    for status in ({}, never):
        one = labelled("HorizontalPodAutoscaler", "decode", spec=spec, status=status)
        assert reading(0.0, [one]).tiers[Tier.DECODE].load is None


@pytest.mark.parametrize(
    ("at", "decode", "calm"),
    [
        (5.0, TierReading(desired=1, ready=1, load=0.2), True),
        (5.0, TierReading(desired=2, ready=1, load=0.2), False),
        (5.0, TierReading(desired=1, ready=2, load=0.2), False),
        (4.0, TierReading(desired=1, ready=1, load=0.2), False),  # before the moment
    ],
)
def test_it_is_calm_once_every_tier_was_seen_to_want_and_have_one_pod(
    at: float, decode: TierReading, calm: bool
) -> None:
    watch = Watch(Cluster(Path("kubectl"), Path("kubeconfig")), "shapes")
    assert not watch.calm_since(4.5)
    one = TierReading(desired=1, ready=1, load=None)
    watch.readings.append(Reading(at, {Tier.ENCODER: one, Tier.DECODE: decode}))
    assert watch.calm_since(4.5) is calm
