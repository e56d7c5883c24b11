"""Which pods to take into service, so that the old version serves until the new one is complete.

Pure. Workers have a readiness gate, so a Deployment takes a new pod for ready, and an old one away
for it, only when the operator has admitted the new one. While versions change, new workers wait
at the gate until enough of every tier run and every gateway uses them; then all are admitted, and
the Deployments take the old ones away, which nobody uses any more. Gateways do not ask the gate:
they find workers by themselves, and only use those of their own version.
"""

from __future__ import annotations

from collections.abc import Mapping

from triptych_contract.names import Tier, Topology

from triptych_operator.observed.snapshot import Pod, Snapshot, TierSnapshot
from triptych_operator.rollout.completeness import can_take_over


def pods_to_admit(
    topology: Topology, revisions: Mapping[Tier, str], surge_percent: int, snapshot: Snapshot
) -> tuple[str, ...]:
    """Names of the pods that run, wait at the gate, and may pass it now.

    Args:
        revisions: the revision that each tier of ``topology`` should have.
    """
    complete = all(
        can_take_over(snapshot.tier(tier), revisions[tier], surge_percent)
        for tier in topology.tiers
    )
    return tuple(
        pod.name
        for tier in topology.tiers
        if tier is not Tier.GATEWAY
        for pod in snapshot.tier(tier).pods
        if _waits(pod) and _may_pass(pod, snapshot.tier(tier), revisions[tier], complete=complete)
    )


def _waits(pod: Pod) -> bool:
    return pod.running and not pod.admitted and not pod.terminating


def _may_pass(pod: Pod, tier: TierSnapshot, revision: str, *, complete: bool) -> bool:
    """A pod of the new version passes with all others, or when there is no old one to wait for; one
    of any version when that serves already, as it then replaces one that was lost."""
    if pod.revision == revision and (complete or not _has_old(tier, revision)):
        return True
    return any(other.admitted and other.revision == pod.revision for other in tier.pods)


def _has_old(tier: TierSnapshot, revision: str) -> bool:
    return any(pod.revision != revision for pod in tier.pods)
