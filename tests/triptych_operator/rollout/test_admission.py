"""A rollout on a model of Deployments, gateways and the operator, in any order of events: at every
moment, whoever answers requests has workers of its own version.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from triptych_contract.names import Tier, Topology
from triptych_operator.observed.snapshot import Pod, Snapshot, TierSnapshot
from triptych_operator.rollout.admission import pods_to_admit

TOPOLOGY = Topology.FULL_SPLIT
WORKERS = (Tier.ENCODER, Tier.PREFILL, Tier.DECODE)
NAMES = itertools.count()


@dataclass
class Deployment:
    """One tier as the Deployment controller keeps it: more than ``desired`` pods by the surge, and
    never fewer ready ones than ``desired``."""

    tier: Tier
    desired: int
    surge: int
    revision: str
    pods: list[Pod] = field(default_factory=list)

    def reconcile(self) -> None:
        staying = [pod for pod in self.pods if not pod.terminating]
        new = [pod for pod in staying if pod.revision == self.revision]
        old = [pod for pod in staying if pod.revision != self.revision]
        if len(new) < self.desired and len(staying) < self.desired + self.surge:
            self.pods.append(Pod(f"{self.tier}-{next(NAMES)}", self.revision))
        for pod in old:
            spare = sum(one.ready for one in staying) > self.desired
            if not pod.ready or spare:
                self.change(pod, terminating=True)
                return

    def change(self, pod: Pod, **changes: bool) -> None:
        self.pods[self.pods.index(pod)] = replace(pod, **changes)


class Cluster:
    def __init__(self, sizes: dict[Tier, int], percent: int) -> None:
        self.percent = percent
        self.target = "one"
        self.tiers = {
            tier: Deployment(
                tier, size, 1 if tier is Tier.GATEWAY else -(-size * percent // 100), "one"
            )
            for tier, size in sizes.items()
        }
        for tier, one in self.tiers.items():
            one.pods = [
                Pod(f"{tier}-{index}", "one", ready=True, running=True, admitted=True)
                for index in range(one.desired)
            ]

    def roll(self, revision: str, tiers: tuple[Tier, ...] = (*WORKERS, Tier.GATEWAY)) -> None:
        self.target = revision
        for tier in tiers:
            self.tiers[tier].revision = revision

    def snapshot(self) -> Snapshot:
        return Snapshot(
            tuple(
                TierSnapshot(one.tier, True, one.desired, one.revision, "", tuple(one.pods))
                for one in self.tiers.values()
            )
        )

    def operate(self) -> None:
        revisions = {tier: one.revision for tier, one in self.tiers.items()}
        names = pods_to_admit(TOPOLOGY, revisions, self.percent, self.snapshot())
        for one in self.tiers.values():
            for pod in list(one.pods):
                if pod.name in names:
                    one.change(pod, admitted=True, ready=True)

    def start(self, tier: Tier) -> None:
        """A pod's process comes up; a gateway is ready once its version has every worker."""
        one = self.tiers[tier]
        for pod in one.pods:
            if not pod.running and not pod.terminating:
                if tier is not Tier.GATEWAY:
                    one.change(pod, running=True)
                    return
                if self.has_workers(pod.revision):
                    one.change(pod, running=True, ready=True)
                    return

    def end(self, tier: Tier) -> None:
        one = self.tiers[tier]
        one.pods = [pod for pod in one.pods if not pod.terminating]

    def crash(self, tier: Tier) -> None:
        """A worker of several is lost, and comes back by its ReplicaSet, outside the gate again."""
        one = self.tiers[tier]
        pod = one.pods[0]
        alike = [other for other in one.pods[1:] if other.admitted and not other.terminating]
        if not pod.terminating and any(other.revision == pod.revision for other in alike):
            one.pods[0] = Pod(f"{tier}-{next(NAMES)}", pod.revision, running=True)

    def has_workers(self, revision: str) -> bool:
        return all(
            any(
                pod.running and not pod.terminating and pod.revision == revision
                for pod in self.tiers[tier].pods
            )
            for tier in WORKERS
        )

    def check(self) -> None:
        for pod in self.tiers[Tier.GATEWAY].pods:
            if pod.ready:  # also one that is terminating: it has requests to finish
                assert self.has_workers(pod.revision), (pod, self.tiers)

    def settled(self) -> bool:
        return all(
            len(one.pods) == one.desired
            and all(pod.ready and pod.revision == one.revision for pod in one.pods)
            for one in self.tiers.values()
        )


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["reconcile", "start", "end", "operate", "crash"]), st.sampled_from(Tier)
    ),
    max_size=60,
)
SIZES = st.fixed_dictionaries({tier: st.integers(1, 4) for tier in (*WORKERS, Tier.GATEWAY)})


def play(cluster: Cluster, event: str, tier: Tier) -> None:
    one = cluster.tiers.get(tier, cluster.tiers[Tier.DECODE])
    match event:
        case "reconcile":
            one.reconcile()
        case "start":
            cluster.start(one.tier)
        case "end":
            cluster.end(one.tier)
        case "operate":
            cluster.operate()
        case "crash":
            if one.tier is not Tier.GATEWAY:
                cluster.crash(one.tier)
    cluster.check()


def finish(cluster: Cluster) -> None:
    """Everything that can happen does, until nothing changes any more."""
    for _ in range(30):
        if cluster.settled():
            return
        for tier in cluster.tiers:
            for event in ("reconcile", "start", "operate", "end"):
                play(cluster, event, tier)
    assert cluster.settled(), cluster.tiers


@settings(max_examples=100)
@given(SIZES, st.sampled_from([100, 50, 1]), EVENTS)
def test_a_new_version_takes_over_without_a_moment_that_cannot_serve(
    sizes: dict[Tier, int], percent: int, events: list[tuple[str, Tier]]
) -> None:
    cluster = Cluster(sizes, percent)
    cluster.roll("two")
    for event, tier in events:
        play(cluster, event, tier)
    finish(cluster)


@settings(max_examples=100)
@given(SIZES, st.sampled_from([100, 50]), EVENTS)
def test_one_tier_alone_rolls_without_waiting_for_others(
    sizes: dict[Tier, int], percent: int, events: list[tuple[str, Tier]]
) -> None:
    cluster = Cluster(sizes, percent)
    one = cluster.tiers[Tier.DECODE]
    one.revision = "one-larger"
    # Its pods differ from those before in what no other tier needs to know: any gateway uses both.
    cluster.has_workers = lambda revision: all(  # type: ignore[method-assign]
        any(pod.running and not pod.terminating for pod in cluster.tiers[tier].pods)
        for tier in WORKERS
    )
    for event, tier in events:
        play(cluster, event, tier)
    finish(cluster)


def test_a_version_that_never_comes_up_leaves_the_old_one_alone() -> None:
    cluster = Cluster(dict.fromkeys((*WORKERS, Tier.GATEWAY), 2), 100)
    cluster.roll("broken")
    for _ in range(20):
        for tier in (*WORKERS, Tier.GATEWAY):
            play(cluster, "reconcile", tier)
            if tier is not Tier.DECODE:
                play(cluster, "start", tier)
            play(cluster, "operate", tier)
    old = [pod for one in cluster.tiers.values() for pod in one.pods if pod.revision == "one"]
    assert len(old) == 8
    assert not any(pod.terminating for pod in old)
    cluster.roll("one")
    finish(cluster)


def test_the_first_pods_of_a_service_pass_as_they_come() -> None:
    waiting = Pod("e-1", "one", running=True)
    seen = Snapshot((TierSnapshot(Tier.ENCODER, True, 2, "one", "", (waiting,)),))
    revisions = dict.fromkeys(Tier, "one")
    assert pods_to_admit(TOPOLOGY, revisions, 100, seen) == ("e-1",)


def test_a_pod_that_scales_up_or_replaces_another_passes_at_once() -> None:
    serving = Pod("d-1", "old", running=True, ready=True, admitted=True)
    fresh = Pod("d-2", "old", running=True)
    new = Pod("d-3", "new", running=True)
    starting = Pod("d-4", "old")
    going = Pod("d-5", "old", running=True, terminating=True)
    pods = (serving, fresh, new, starting, going)
    seen = Snapshot((TierSnapshot(Tier.DECODE, True, 2, "new", "", pods),))
    assert pods_to_admit(TOPOLOGY, dict.fromkeys(Tier, "new"), 100, seen) == ("d-2",)
