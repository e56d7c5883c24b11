"""Whole rollouts: what each step applies and keeps, on a cluster that does as it is told."""

from dataclasses import dataclass, field, replace

import pytest
from triptych_contract.names import Tier, Topology
from triptych_operator.observed.snapshot import Pod, Snapshot, TierSnapshot
from triptych_operator.rollout.step import Step, next_step

E, P, D, F, G = Tier.ENCODER, Tier.PREFILL, Tier.DECODE, Tier.FUSED, Tier.GATEWAY
REVISIONS = dict.fromkeys(Tier, "r")


@dataclass
class Cluster:
    """Applies steps; pods of what was applied become ready when told. A gateway's revision is its
    topology, since that is part of its configuration."""

    tiers: dict[Tier, TierSnapshot] = field(default_factory=dict)

    def apply(self, step: Step, topology: Topology) -> None:
        for tier in step.apply:
            before = self.tiers.get(tier)
            revision = topology.value if tier is G else "r"
            if before is None or before.revision != revision:
                old = before.pods if before else ()
                pods = (*old, Pod(f"{tier}-{revision}", revision))
                self.tiers[tier] = TierSnapshot(
                    tier, True, 1, revision, topology.value if tier is G else "", pods
                )
        for tier in set(self.tiers) - set(step.apply) - set(step.keep):
            del self.tiers[tier]

    def settle(self) -> None:
        """Every rollout ends: new pods are ready, old ones gone."""
        for tier, seen in self.tiers.items():
            pods = tuple(replace(pod, running=True, ready=True) for pod in seen.pods[-1:])
            self.tiers[tier] = replace(seen, pods=pods)

    def step(self, topology: Topology) -> Step:
        revisions = {**REVISIONS, G: topology.value}
        return next_step(topology, revisions, 100, Snapshot(tuple(self.tiers.values())))

    def serves(self) -> bool:
        """Whether every gateway pod has all the workers that it routes to, ready."""
        gateway = self.tiers.get(G)
        if gateway is None:
            return False
        routed = {Topology(pod.revision) for pod in gateway.pods if pod.ready}
        needed = {tier for topology in routed for tier in topology.tiers if tier is not G}
        ready = {tier for tier, seen in self.tiers.items() if any(pod.ready for pod in seen.pods)}
        return bool(routed) and needed <= ready


def running(topology: Topology) -> Cluster:
    cluster = Cluster()
    cluster.apply(cluster.step(topology), topology)
    cluster.settle()
    return cluster


@pytest.mark.parametrize("topology", list(Topology))
def test_a_new_resource_is_applied_whole(topology: Topology) -> None:
    assert Cluster().step(topology) == Step(topology.tiers)


@pytest.mark.parametrize("topology", list(Topology))
def test_a_change_within_a_topology_goes_to_all_tiers_at_once(topology: Topology) -> None:
    cluster = running(topology)
    cluster.tiers = {
        tier: replace(seen, revision="older", pods=(Pod("a", "older", ready=True),))
        for tier, seen in cluster.tiers.items()
    }
    assert cluster.step(topology) == Step(topology.tiers)


MOVES: list[tuple[Topology, Topology, list[Step]]] = [
    (
        Topology.FUSED,
        Topology.FULL_SPLIT,
        [
            Step((E, P, D), (F, G), "encoder and prefill and decode to be ready"),
            Step((E, P, D, G), (F,), "gateway to route without fused"),
            Step((E, P, D, G)),
        ],
    ),
    (
        Topology.FULL_SPLIT,
        Topology.FUSED,
        [
            Step((F,), (E, P, D, G), "fused to be ready"),
            Step((F, G), (E, P, D), "gateway to route without encoder and prefill and decode"),
            Step((F, G)),
        ],
    ),
    (
        Topology.FUSED,
        Topology.ENCODE_SPLIT,
        [Step((E, F), (G,), "encoder to be ready"), Step((E, F, G))],
    ),
    (
        Topology.ENCODE_SPLIT,
        Topology.FUSED,
        [Step((F, G), (E,), "gateway to route without encoder"), Step((F, G))],
    ),
    (
        Topology.ENCODE_SPLIT,
        Topology.FULL_SPLIT,
        [
            Step((E, P, D), (F, G), "prefill and decode to be ready"),
            Step((E, P, D, G), (F,), "gateway to route without fused"),
            Step((E, P, D, G)),
        ],
    ),
    (
        Topology.FULL_SPLIT,
        Topology.ENCODE_SPLIT,
        [
            Step((E, F), (P, D, G), "fused to be ready"),
            Step((E, F, G), (P, D), "gateway to route without prefill and decode"),
            Step((E, F, G)),
        ],
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "steps"), MOVES, ids=[f"{old}-to-{new}" for old, new, _ in MOVES]
)
def test_a_change_of_topology_serves_at_every_moment(
    old: Topology, new: Topology, steps: list[Step]
) -> None:
    cluster = running(old)
    assert cluster.serves()
    for step in steps:
        assert cluster.step(new) == step
        cluster.apply(step, new)
        assert cluster.serves()
        if step.waiting:
            assert cluster.step(new) == step  # until it is ready, and after any restart of ours
        cluster.settle()
        assert cluster.serves()
    assert set(cluster.tiers) == set(new.tiers)
    assert cluster.step(new) == steps[-1]


@pytest.mark.parametrize(("old", "new", "steps"), MOVES)
def test_a_change_that_is_taken_back_half_way_leaves_nothing(
    old: Topology, new: Topology, steps: list[Step]
) -> None:
    cluster = running(old)
    cluster.apply(steps[0], new)
    for _ in range(4):
        cluster.apply(cluster.step(old), old)
        cluster.settle()
        assert cluster.serves()
    assert set(cluster.tiers) == set(old.tiers)
