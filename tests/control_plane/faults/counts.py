"""Whether the numbers of pods that statuses told were ever so, in the order of the telling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from control_plane.faults.history import COMPONENT, RESOURCE, Change


@dataclass
class _Counted:
    """Values that a number has had, of which a status may tell the last told or a later one."""

    values: list[int] = field(default_factory=list)

    def take(self, value: int, *, before: bool) -> None:
        """What it is now; what it was ``before`` the recording is told by no status in it."""
        if before:
            self.values.clear()
        if not self.values or self.values[-1] != value:
            self.values.append(value)

    def told(self, value: int) -> bool:
        """Whether it was so; then what was before that cannot be told any more."""
        if value not in self.values:
            return False
        del self.values[: self.values.index(value)]
        return True


def untrue_counts(changes: Sequence[Change], tier: str) -> list[str]:
    """What statuses said of the pods of a ``tier`` that never rolls and was not so, in words.

    Desired pods are those that its Deployment asks for, ready ones those that are and stay. Whoever
    writes the status learns of the two by streams of their own, so each has an order of its own. A
    tier that is said to be ready has as many ready pods as it should.
    """
    found: list[str] = []
    desired, ready = _Counted(), _Counted()
    pods: dict[str, bool] = {}
    for change in changes:
        metadata = change.body["metadata"]
        if change.kind == RESOURCE and not change.before:
            for one in _told(change, tier):
                wrong = not (desired.told(one["desired"]) and ready.told(one["ready"]))
                lied = _says_ready(change, tier) and one["desired"] != one["ready"]
                found += [f"at {change.version}: {one['pods']} of {tier}"] if wrong or lied else []
        elif metadata.get("labels", {}).get(COMPONENT) != tier:
            continue
        elif change.kind == "Deployment":
            desired.take(int(change.body["spec"].get("replicas", 0)), before=change.before)
        elif change.kind == "Pod":
            pods[metadata["name"]] = not change.deleted and _stays_ready(change.body)
            ready.take(sum(pods.values()), before=change.before)
    return found


def _told(change: Change, tier: str) -> list[Mapping[str, Any]]:
    tiers = change.body.get("status", {}).get("tiers", ())
    return [one for one in tiers if one["name"] == tier]


def _says_ready(change: Change, tier: str) -> bool:
    conditions = change.body["status"].get("conditions", ())
    types = ("Ready", f"{tier.capitalize()}Ready")
    return any(one["type"] in types and one["status"] == "True" for one in conditions)


def _stays_ready(body: Mapping[str, Any]) -> bool:
    conditions = body.get("status", {}).get("conditions", ())
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and "deletionTimestamp" not in body["metadata"]
