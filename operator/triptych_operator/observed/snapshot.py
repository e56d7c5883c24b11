"""What is observed of a resource's children: frozen, and read from the API server's JSON. Pure.

The parsers take objects as the API server hands them out and look at the few fields they need; a
field that is not there yet (a pod just created has no status) reads as its zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from triptych_contract.names import Tier

from triptych_operator.desired import naming
from triptych_operator.observed.store import Child
from triptych_operator.observed.troubles import Trouble, trouble_of_autoscaler, trouble_of_pod

Object = Mapping[str, Any]  # as the API server hands it out
_EXTERNAL: Final = "external metric"  # in what an autoscaler says of signals that are not its own
_TIER_KINDS: Final = frozenset({"Deployment", "Pod", "HorizontalPodAutoscaler"})


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. ``revision`` is that of the template it was made from. ``running``: its containers
    are ready; ``admitted``: it has passed the gate of ``rollout.admission``."""

    name: str
    revision: str
    ready: bool = False
    running: bool = False
    admitted: bool = False
    terminating: bool = False
    trouble: Trouble | None = None
    address: str = ""  # its IP address, once it has one
    cost: int = 0  # of its deletion, as it is annotated


@dataclass(frozen=True, slots=True)
class TierSnapshot:
    """One tier: ``desired`` pods of ``revision``, and those that there are.

    ``present``, ``desired``, ``revision``, ``topology`` (of a gateway: which one it routes for) and
    ``may_rest`` (without pods, all is well) are those of the Deployment as it stands.
    ``rolled_out``: by the Deployment's own status, too, all its pods are of its version and ready.
    ``scaling`` is what keeps the autoscaler from its work.
    """

    tier: Tier
    present: bool = False
    desired: int = 0
    revision: str = ""
    topology: str = ""
    pods: tuple[Pod, ...] = ()
    scaling: Trouble | None = None
    may_rest: bool = False
    rolled_out: bool = False

    @property
    def rests(self) -> bool:
        """It has no pods, and may."""
        return self.present and self.desired == 0 and self.may_rest


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All tiers, and what the API server said to the last change that it refused."""

    tiers: tuple[TierSnapshot, ...] = ()
    refusal: Trouble | None = None

    def tier(self, tier: Tier) -> TierSnapshot:
        """What is observed of ``tier``; nothing when it has not been seen."""
        return next((one for one in self.tiers if one.tier is tier), TierSnapshot(tier))


def pod_of(body: Object) -> Pod:
    """A pod."""
    metadata, status = body.get("metadata", {}), body.get("status", {})
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions", ())}
    return Pod(
        name=metadata.get("name", ""),
        revision=metadata.get("labels", {}).get(naming.REVISION, ""),
        ready=conditions.get("Ready") == "True",
        running=conditions.get("ContainersReady") == "True",
        admitted=conditions.get(naming.IN_SERVICE) == "True",
        terminating="deletionTimestamp" in metadata,
        cost=_whole(metadata.get("annotations", {}).get(naming.DELETION_COST, "")),
        trouble=trouble_of_pod(body),
        address=status.get("podIP", ""),
    )


def tier_of(
    tier: Tier,
    deployment: Object | None,
    pods: Sequence[Object],
    autoscaler: Object | None,
    *,
    rolled_out: bool = False,
) -> TierSnapshot:
    """A tier from its Deployment, its pods in any order and its autoscaler, if it has one."""
    body = deployment or {}
    spec = body.get("spec", {})
    template = spec.get("template", {}).get("metadata", {})
    annotations = body.get("metadata", {}).get("annotations", {})
    return TierSnapshot(
        tier=tier,
        present=deployment is not None,
        topology=annotations.get(naming.TOPOLOGY, ""),
        may_rest=naming.MAY_REST in annotations,
        desired=int(spec.get("replicas", 0)),
        revision=template.get("labels", {}).get(naming.REVISION, ""),
        pods=tuple(sorted((pod_of(body) for body in pods), key=lambda pod: pod.name)),
        scaling=trouble_of_autoscaler(autoscaler) if autoscaler is not None else None,
        rolled_out=rolled_out,
    )


def snapshot_of(children: Sequence[Child], refusal: Trouble | None = None) -> Snapshot:
    """What is observed of all tiers, from the resource's children in any order."""
    by_tier: dict[str, list[tuple[Child, Object]]] = {}
    for child in children:
        if child.key.kind in _TIER_KINDS:
            body = child.body()
            tier = body["metadata"]["labels"].get(naming.COMPONENT, "")
            by_tier.setdefault(tier, []).append((child, body))
    tiers = tuple(_tier_among(tier, by_tier[tier]) for tier in Tier if tier in by_tier)
    return Snapshot(tiers, refusal)


def explained(snapshot: Snapshot, cause: str) -> Snapshot:
    """``snapshot`` with ``cause`` for why autoscalers do not get at Triptych's signals, where they
    say no more than that they do not; as it is when ``cause`` is empty."""
    if not cause:
        return snapshot
    tiers = tuple(
        replace(tier, scaling=replace(tier.scaling, message=cause))
        if tier.scaling is not None and _EXTERNAL in tier.scaling.message
        else tier
        for tier in snapshot.tiers
    )
    return replace(snapshot, tiers=tiers)


def _whole(text: str) -> int:
    return int(text) if text.removeprefix("-").isdecimal() else 0


def _tier_among(tier: Tier, found: Sequence[tuple[Child, Object]]) -> TierSnapshot:
    def bodies(kind: str) -> list[Object]:
        return [body for child, body in found if child.key.kind == kind]

    deployment = next(iter(bodies("Deployment")), None)
    autoscaler = next(iter(bodies("HorizontalPodAutoscaler")), None)
    rolled_out = any(child.rolled_out for child, _ in found)
    return tier_of(tier, deployment, bodies("Pod"), autoscaler, rolled_out=rolled_out)
