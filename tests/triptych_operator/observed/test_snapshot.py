from typing import Any

from mms_builders import service
from triptych_contract.names import Tier
from triptych_operator.desired.configmaps import configuration, digest
from triptych_operator.desired.deployments import deployment, revision
from triptych_operator.desired.platform import Platform
from triptych_operator.observed.snapshot import (
    Pod,
    Snapshot,
    TierSnapshot,
    explained,
    pod_of,
    tier_of,
)
from triptych_operator.observed.troubles import Reason, Trouble

PLATFORM = Platform(image="worker:1")
CONFIG = 64 * "0"


def pod(name: str, label: str, *, ready: str = "True", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"triptych.dev/revision": label}, **metadata},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def test_a_pod_is_read_with_its_revision_and_readiness() -> None:
    assert pod_of(pod("a", "r1")) == Pod("a", "r1", ready=True)
    assert pod_of(pod("a", "r1", ready="False")) == Pod("a", "r1")
    assert pod_of(pod("a", "r1", deletionTimestamp="2026-01-01T00:00:00Z")).terminating


def test_a_pod_tells_what_its_deletion_costs_and_nothing_where_that_is_no_number() -> None:
    costs = [
        pod_of(pod("a", "r1", annotations={"controller.kubernetes.io/pod-deletion-cost": text}))
        for text in ("7", "-3", "much", "")
    ]
    assert [one.cost for one in costs] == [7, -3, 0, 0]


def test_encoders_rest_where_they_may_and_have_no_pods() -> None:
    resting = {"max": 2, "scaleToZeroAfter": "10m"}
    resource = service(tiers__encoder__autoscaling=resting, degraded__onEncoderLoss="Queue")
    built: Any = deployment(resource, Tier.ENCODER, PLATFORM, CONFIG)
    assert not tier_of(Tier.ENCODER, _scaled(built, 1), [], None).rests
    assert tier_of(Tier.ENCODER, _scaled(built, 0), [], None).rests
    other: Any = deployment(service(), Tier.ENCODER, PLATFORM, CONFIG)
    assert not tier_of(Tier.ENCODER, _scaled(other, 0), [], None).rests


def _scaled(built: dict[str, Any], pods: int) -> dict[str, Any]:
    return {**built, "spec": {**built["spec"], "replicas": pods}}


def test_a_pod_just_created_has_nothing_yet() -> None:
    assert pod_of({"metadata": {"name": "a"}}) == Pod("a", "")


def test_a_tier_has_the_revision_of_the_deployment_that_was_built_for_it() -> None:
    resource = service(tiers__decode__replicas=2)
    config = digest(configuration(resource, Tier.DECODE, PLATFORM))
    built: Any = deployment(resource, Tier.DECODE, PLATFORM, config)
    made = tier_of(Tier.DECODE, built, [pod("b", "x"), pod("a", "x")], None)
    assert made.revision == revision(resource, Tier.DECODE, PLATFORM)
    assert (made.present, made.topology) == (True, "")
    assert (made.desired, [one.name for one in made.pods]) == (2, ["a", "b"])


def test_a_gateway_tells_which_topology_it_routes_for() -> None:
    built: Any = deployment(service(topology="Fused"), Tier.GATEWAY, PLATFORM, CONFIG)
    assert tier_of(Tier.GATEWAY, built, [], None).topology == "Fused"


def test_another_template_is_another_revision() -> None:
    revisions = [
        revision(resource, Tier.DECODE, PLATFORM)
        for resource in (
            service(),
            service(tiers__decode__limits={"maxRunning": 3}),
            service(engine__image="worker:2"),
            service(tiers__decode__template={"spec": {"nodeSelector": {"a": "b"}}}),
        )
    ]
    assert len(set(revisions)) == 4
    assert revision(service(tiers__decode__replicas=5), Tier.DECODE, PLATFORM) == revisions[0]


def test_a_tier_that_is_not_there_yet_wants_nothing() -> None:
    assert tier_of(Tier.ENCODER, None, [], None) == TierSnapshot(Tier.ENCODER)
    assert Snapshot().tier(Tier.ENCODER) == TierSnapshot(Tier.ENCODER)


def test_what_blinds_the_autoscaler_is_kept() -> None:
    condition = {"type": "ScalingActive", "status": "False", "reason": "X", "message": "m"}
    made = tier_of(Tier.ENCODER, None, [], {"status": {"conditions": [condition]}})
    assert made.scaling is not None
    assert made.scaling.reason is Reason.SCALING_BLIND


def test_why_signals_are_not_served_is_told_where_an_autoscaler_misses_them() -> None:
    def tier(name: Tier, message: str) -> TierSnapshot:
        return TierSnapshot(name, scaling=Trouble(Reason.SCALING_BLIND, message))

    blind = "unable to get external metric default/triptych_encoder_backlog_tokens: no metrics"
    observed = Snapshot(
        (
            tier(Tier.ENCODER, blind),
            tier(Tier.PREFILL, "unable to get metrics for resource cpu"),
            TierSnapshot(Tier.DECODE),
        )
    )
    found = explained(observed, "another adapter serves")
    assert found.tier(Tier.ENCODER) == tier(Tier.ENCODER, "another adapter serves")
    assert found.tiers[1:] == observed.tiers[1:]
    assert explained(observed, "") is observed
