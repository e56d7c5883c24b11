"""A change of any place that is taken back leaves the children as they were, byte for byte.

The operator acts on the change before it is taken back, but need not be done with it: most of the
extremes that a schema allows never become ready. TRIPTYCH_SWEEP=full changes every place; otherwise
some are.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest
from cluster.children import difference
from cluster.control_plane import ControlPlane
from control_plane.faults.sweep import FULL
from control_plane.lanes import Lane, opened
from control_plane.leaf_values import right_values
from control_plane.spec_places import (
    REMOVED,
    Place,
    is_in_sample,
    places,
    resource_around,
    resource_with,
)
from control_plane.verdicts import refused_here

LANES: Final = 6
EVERY_NTH: Final = 1 if FULL else 3
FEW_PODS: Final = {"replicas": 2, "min": 2}  # instead of 1,000


def changeable() -> list[Place]:
    """Places whose change the API server takes, those with the same surroundings together."""
    found = [
        place
        for place in places()
        if place.path[:1] == ("spec",)
        and place.is_leaf
        and place.path[-1] != "servedName"
        and (FULL or is_in_sample(place))
    ]
    return sorted(found[::EVERY_NTH], key=_surroundings)


def changed(place: Place) -> dict[str, Any]:
    """The resource around ``place`` with a value in it that it does not have."""
    few = [FEW_PODS[place.path[-1]]] if place.path[-1] in FEW_PODS else []
    values = [*few, *right_values(place).values(), REMOVED, *place.schema.get("enum", ())]
    around = resource_around(place.path)
    candidates = (resource_with(place.path, value) for value in values)
    return next(body for body in candidates if body != around and not refused_here(body))


async def check(lane: Lane, share: Sequence[Place]) -> None:
    for _, group in groupby(share, _surroundings):
        together = list(group)
        around = resource_around(together[0].path)
        await lane.apply(around)
        await lane.settle()
        before = await lane.children()
        for place in together:
            await lane.apply(changed(place))
            await lane.seen()
            await lane.apply(around)
            await lane.settle()
            assert difference(await lane.children(), before) == [], place.name


@pytest.mark.timeout(5400 if FULL else 900)
async def test_a_change_that_is_taken_back_leaves_nothing_behind(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    every = changeable()
    share = -(-len(every) // LANES)
    async with opened(control_plane, tmp_path, LANES) as lanes, asyncio.TaskGroup() as group:
        for number, lane in enumerate(lanes):
            group.create_task(check(lane, every[number * share : (number + 1) * share]))


def _surroundings(place: Place) -> str:
    return json.dumps(resource_around(place.path), sort_keys=True)
