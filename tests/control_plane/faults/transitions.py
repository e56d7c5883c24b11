"""What happens to a resource while faults do: its creation, changes and deletion. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cluster.children import SERVICES
from control_plane.faults.history import MARK

NAME: Final = "shapes"
FULL_SPLIT: Final = ("encoder", "prefill", "decode", "gateway")
FUSED: Final = ("fused", "gateway")
_AUTOSCALING: Final = {
    "min": 1,
    "max": 3,
    "metrics": [{"signal": "RunningRequests", "target": "8"}],
}

Manifest = Mapping[str, Any]


class Transition(StrEnum):
    """What is done to a resource."""

    CREATE = "create"
    UPDATE = "update"  # new pods everywhere, one more of one tier, and an autoscaler goes
    TOPOLOGY = "topology"  # from FullSplit to Fused, by way of both
    DELETE = "delete"
    RECREATE = "recreate"  # deleted, and another made under its name at once
    REPLACE = "replace"  # deleted, and made anew as it was, as by kubectl replace --force


@dataclass(frozen=True)
class Goal:
    """What a transition starts from and leads to; ``None`` is no resource."""

    before: Manifest | None
    after: Manifest | None


def goal(transition: Transition) -> Goal:
    """The specs of ``transition``."""
    first = service("FullSplit", FULL_SPLIT, "first", autoscaled="decode")
    changed = service("FullSplit", FULL_SPLIT, "second", encoder={"replicas": 2})
    return {
        Transition.CREATE: Goal(None, first),
        Transition.UPDATE: Goal(first, changed),
        Transition.TOPOLOGY: Goal(first, service("Fused", FUSED, "second")),
        Transition.DELETE: Goal(first, None),
        Transition.RECREATE: Goal(first, changed),
        Transition.REPLACE: Goal(first, first),
    }[transition]


def service(
    topology: str,
    tiers: tuple[str, ...],
    mark: str,
    *,
    autoscaled: str = "",
    **changes: Mapping[str, Any],
) -> dict[str, Any]:
    """A resource whose pods all bear ``mark``. ``changes`` are added to the tiers of their name."""
    template = {"metadata": {"annotations": {MARK: mark}}}
    made: dict[str, dict[str, Any]] = {tier: {"template": template} for tier in tiers}
    if autoscaled:
        made[autoscaled]["autoscaling"] = _AUTOSCALING
    for tier, change in changes.items():
        made[tier] |= change
    return {
        "apiVersion": "triptych.dev/v1alpha1",
        "kind": "MultimodalService",
        "metadata": {"name": NAME},
        "spec": {
            "model": {"source": "builtin://shapes", "revision": "1", "servedName": "shapes"},
            "topology": topology,
            "tiers": made,
        },
    }


def path(namespace: str) -> str:
    """Where the resource is."""
    return f"{SERVICES.format(namespace)}/{NAME}"
