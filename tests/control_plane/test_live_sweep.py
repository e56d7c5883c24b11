"""A change of any place that is taken back leaves the children as they were, byte for byte.

The operator acts on the change before it is taken back, but need not be done with it: most of the
extremes that a schema allows never become ready. TRIPTYCH_SWEEP=full changes every place; otherwise
some are. The log "leaves" (--log-cli-level=INFO) tells of each.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest
from cluster.api import ApiError
from cluster.children import difference
from cluster.control_plane import ControlPlane
from control_plane.faults.sweep import FULL
from control_plane.lanes import Lane, opened, without_scaled
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
from mms_builders import manifest
from triptych_operator.api.manifests import validate_service

LOG: Final = logging.getLogger("leaves")
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


async def check(lane: Lane, share: Sequence[Place], failures: list[str]) -> None:
    """Tries places one after another; one that fails holds up only those around it."""
    for _, group in groupby(share, _surroundings):
        try:
            await check_together(lane, list(group), failures)
        except (TimeoutError, ApiError) as error:
            failures.append(str(error))


async def check_together(lane: Lane, together: Sequence[Place], failures: list[str]) -> None:
    """Tries places that have the same surroundings."""
    around = resource_around(together[0].path)
    await apply_anew(lane, around)
    service = validate_service(around, "sweep")
    before = without_scaled(await lane.children(), service)
    for place in together:
        await lane.apply(changed(place))
        await lane.seen()
        await apply_anew(lane, around)
        lines = difference(without_scaled(await lane.children(), service), before)
        LOG.info("%s: %s", place.name, lines or "as before")
        failures += [f"{place.name}: {line}" for line in lines]


async def apply_anew(lane: Lane, around: dict[str, Any]) -> None:
    """Applies a resource and waits until it stands. One that has an object without fields comes by
    way of one that has none: a server-side apply that takes an object's last field away, and leaves
    the object, makes it null, and is refused by the very server that did so."""
    if _has_empty(around):
        await lane.apply(manifest(topology=around["spec"]["topology"]))
    await lane.apply(around)
    await lane.settle()


@pytest.mark.timeout(5400 if FULL else 900)
async def test_a_change_that_is_taken_back_leaves_nothing_behind(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    every = changeable()
    share, failures = -(-len(every) // LANES), list[str]()
    async with opened(control_plane, tmp_path, LANES) as lanes, asyncio.TaskGroup() as group:
        for number, lane in enumerate(lanes):
            own = every[number * share : (number + 1) * share]
            group.create_task(check(lane, own, failures))
    assert failures == []


def _has_empty(value: object) -> bool:
    if isinstance(value, dict):
        return not value or any(map(_has_empty, value.values()))
    return isinstance(value, list) and any(map(_has_empty, value))


def _surroundings(place: Place) -> str:
    return json.dumps(resource_around(place.path), sort_keys=True)
