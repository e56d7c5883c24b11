"""Bounds of the autoscalers as they are now: the resource's own, balanced, and held in a drain.

Pure, and without a memory: what follows a tier goes by the pods that stand. So that bounds do not
flutter with a tier that shrinks, its pods count until they are gone, and a bound from above only
keeps a tier from growing: pods that its own signals still ask for are not taken away by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import Final

from triptych_contract.names import Tier, Topology

from triptych_operator.api.autoscaling import Autoscaling
from triptych_operator.api.balance import Ratio
from triptych_operator.api.quantities import parse_quantity
from triptych_operator.api.service import ServiceSpec
from triptych_operator.desired import naming
from triptych_operator.desired.difference import sealed
from triptych_operator.json_values import JsonObject
from triptych_operator.observed.snapshot import Snapshot, TierSnapshot

# Kinds of autoscalers, and the names of their fields for the fewest and the most pods.
_FIELDS: Final = {
    "HorizontalPodAutoscaler": ("minReplicas", "maxReplicas"),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount"),
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fewest and the most pods."""

    fewest: int
    most: int


def within_bounds(
    manifests: Sequence[JsonObject], spec: ServiceSpec, snapshot: Snapshot
) -> list[JsonObject]:
    """``manifests``, sealed, with the bounds of every autoscaler as they are now."""
    return [_bounded(manifest, spec, snapshot) for manifest in manifests]


def bounds(spec: ServiceSpec, tier: Tier, given: Autoscaling, snapshot: Snapshot) -> Bounds:
    """Of ``tier``, whose own are ``given`` and hold in any case."""
    standing = snapshot.tier(tier)
    fewest, most = given.min, given.max
    leading = _leader(spec, tier)
    if leading is not None:
        leader, ratio = leading
        pods = _pods(spec, leader, snapshot)
        if ratio.min is not None:
            fewest = max(fewest, _times(ratio.min, pods, ROUND_CEILING))
        if ratio.max is not None:
            most = min(most, max(_times(ratio.max, pods, ROUND_FLOOR), standing.desired))
    if any(pod.terminating for pod in standing.pods):
        fewest = max(fewest, standing.desired)  # one step down at a time
    fewest = min(max(fewest, given.min), given.max)
    return Bounds(fewest, max(most, fewest))


def _bounded(manifest: JsonObject, spec: ServiceSpec, snapshot: Snapshot) -> JsonObject:
    fields = _FIELDS.get(str(manifest["kind"]))
    body = manifest["spec"] if fields is not None else None
    if fields is None or not isinstance(body, dict):
        return manifest
    tier = naming.tier_of(manifest)
    given = spec.tier(tier).autoscaling if tier is not None else None
    if tier is None or given is None:
        return manifest
    found = bounds(spec, tier, given, snapshot)
    if found == Bounds(given.min, given.max):
        return manifest
    fewest, most = fields
    moved: JsonObject = {**body, fewest: found.fewest, most: found.most}
    return sealed({**manifest, "spec": moved})


def _leader(spec: ServiceSpec, tier: Tier) -> tuple[Tier, Ratio] | None:
    """The tier that ``tier`` follows, and how many of its pods there may be for each of that."""
    balance = spec.balance
    if balance is not None and balance.encoder_per_prefill and tier is Tier.ENCODER:
        prefills = Tier.PREFILL if spec.topology is Topology.FULL_SPLIT else Tier.FUSED
        return prefills, balance.encoder_per_prefill
    if balance is not None and balance.prefill_per_decode and tier is Tier.PREFILL:
        return Tier.DECODE, balance.prefill_per_decode
    return None


def _pods(spec: ServiceSpec, tier: Tier, snapshot: Snapshot) -> int:
    """Pods of a leading tier: those that it should have, and those that are still going."""
    standing: TierSnapshot = snapshot.tier(tier)
    desired = standing.desired if standing.present else spec.tier(tier).initial_replicas
    return desired + sum(pod.terminating for pod in standing.pods)


def _times(ratio: str, pods: int, rounding: str) -> int:
    return int((parse_quantity(ratio) * pods).to_integral_value(rounding))
