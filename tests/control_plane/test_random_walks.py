"""Wherever a resource has been, the cluster has what a fresh creation of its last spec gives.

And then nothing more is written. TRIPTYCH_SWEEP=full walks 300 times; otherwise a few are tried.
The log "walks" (--log-cli-level=INFO) tells of each as it ends.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from pathlib import Path
from pprint import pformat

import pytest
from cluster.children import Children, difference
from cluster.control_plane import ControlPlane
from control_plane.faults.sweep import FULL
from control_plane.lanes import NAME, QUIET_SECONDS, Lane, opened, without_scaled
from control_plane.verdicts import refused_here
from control_plane.walks import Walk, walks
from hypothesis import HealthCheck, Phase, given, settings
from triptych_operator.api.manifests import validate_service
from triptych_operator.api.service import MultimodalService

LOG = logging.getLogger("walks")
LANES = 12 if FULL else 6
WALKS = 300 if FULL else 18


@settings(max_examples=100, derandomize=True, database=None)
@given(walk=walks())
def test_every_resource_of_a_walk_is_valid(walk: Walk) -> None:
    assert [problem for body in walk.resources if (problem := refused_here(body))] == []


@pytest.mark.timeout(7200 if FULL else 900)
async def test_a_walk_ends_where_a_fresh_creation_begins(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    waiting, failures = deque(some_walks(WALKS)), list[str]()
    async with opened(control_plane, tmp_path, LANES) as lanes, asyncio.TaskGroup() as group:
        for lane in lanes:
            group.create_task(walk_on(lane, waiting, failures))
    assert failures == []


def some_walks(count: int) -> list[Walk]:
    """Walks that are the same in every run."""
    found: list[Walk] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
        deadline=None,
    )
    @given(walk=walks())
    def collect(walk: Walk) -> None:
        found.append(walk)

    collect()
    return found


async def walk_on(lane: Lane, waiting: deque[Walk], failures: list[str]) -> None:
    """Walks until no walk is ``waiting``; one that fails holds up no other."""
    while waiting:
        walk = waiting.popleft()
        try:
            lines = await walked(lane, walk)
        except TimeoutError as error:
            lines = [str(error)]
        if lines:
            failures.append("\n".join([pformat(walk), *lines]))
        LOG.info("%d edits, %s; %d wait", len(walk.resources), lines or "alike", len(waiting))
        await lane.clear()


async def walked(lane: Lane, walk: Walk) -> list[str]:
    """Walks, looks, and begins anew from the last spec; how what stood differed, in words."""
    for body, patient in zip(walk.resources, walk.patient, strict=True):
        await lane.apply(body)
        if patient:
            await lane.settle()
    await lane.settle()
    last = validate_service(walk.resources[-1], "walk")
    found = await lane.children()
    lines = [*await written_when_touched(lane), *out_of_bounds(found, last)]
    await lane.clear()
    await lane.apply(walk.resources[-1])
    await lane.settle()
    wanted = await lane.children()
    return lines + difference(without_scaled(found, last), without_scaled(wanted, last))


async def written_when_touched(lane: Lane) -> list[str]:
    """What a further reconcile writes, in words."""
    since = lane.audit.position()
    await lane.touch(uuid.uuid4().hex)
    await asyncio.sleep(QUIET_SECONDS)
    return [f"{write} was written {count} times" for write, count in lane.writes(since).items()]


def out_of_bounds(found: Children, service: MultimodalService) -> list[str]:
    """Which Deployments have fewer or more pods than their autoscaler allows, in words."""
    lines = []
    for tier in service.spec.topology.tiers:
        scaling = service.spec.tier(tier).autoscaling
        replicas = found["Deployment", f"{NAME}-{tier}"]["spec"]["replicas"]
        if scaling is not None and not scaling.min <= replicas <= scaling.max:
            lines.append(f"{tier} has {replicas} pods, not {scaling.min} to {scaling.max}")
    return lines
