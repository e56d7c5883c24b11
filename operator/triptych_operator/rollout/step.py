"""Which tiers to apply now, and which to leave as they are until others are ready. Pure.

A change within a topology goes to all tiers at once; ``admission`` then keeps the old pods until
the new ones are complete. A change of topology takes up to three steps, in each of which one
complete pipeline serves:

1. the worker tiers of the new topology, while the gateway and the tiers that only the old one has
   stay untouched;
2. once they run, the gateway, whose pods then route the new way;
3. once all its pods do, the old tiers go.

A tier of both topologies has the same pods in either, so nothing rolls that need not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triptych_contract.names import Tier, Topology

from triptych_operator.observed.snapshot import Snapshot
from triptych_operator.rollout.completeness import can_take_over


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now: tiers to apply, and tiers to leave as they are; all others are to be pruned.

    ``waiting`` says what the next step waits for, and is empty in the last one.
    """

    apply: tuple[Tier, ...]
    keep: tuple[Tier, ...] = ()
    waiting: str = ""


def next_step(
    topology: Topology, revisions: Mapping[Tier, str], surge_percent: int, snapshot: Snapshot
) -> Step:
    """The step towards ``topology`` from what is observed.

    Args:
        revisions: the revision that each tier of ``topology`` should have.
    """
    gateway = snapshot.tier(Tier.GATEWAY)
    old = tuple(one for one in Tier if one not in topology.tiers and snapshot.tier(one).present)
    if gateway.present and gateway.topology != topology:
        workers = tuple(tier for tier in topology.tiers if tier is not Tier.GATEWAY)
        waiting = [
            one
            for one in workers
            if not can_take_over(snapshot.tier(one), revisions[one], surge_percent)
        ]
        if waiting:
            return Step(workers, (*old, Tier.GATEWAY), f"{_listed(waiting)} to be ready")
    if old and not can_take_over(gateway, revisions[Tier.GATEWAY], surge_percent):
        return Step(topology.tiers, old, f"gateway to route without {_listed(old)}")
    return Step(topology.tiers)


def _listed(tiers: Sequence[Tier]) -> str:
    return " and ".join(tiers)
