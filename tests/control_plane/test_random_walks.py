"""Wherever a resource has been, the cluster has what a fresh creation of its last spec gives.

And then nothing more is written. TRIPTYCH_SWEEP=full walks 300 times; otherwise a few are tried.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from cluster.children import Children, difference
from cluster.control_plane import ControlPlane
from control_plane.faults.sweep import FULL
from control_plane.lanes import NAME, QUIET_SECONDS, Lane, opened
from control_plane.verdicts import refused_here
from control_plane.walks import Walk, walks
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from triptych_operator.api.manifests import validate_service
from triptych_operator.api.service import MultimodalService

LANES = 12 if FULL else 6
WALKS = 300 if FULL else 18


class Lanes:
    """All lanes, on an event loop of their own, since hypothesis calls no asynchronous tests."""

    def __init__(self, runner: asyncio.Runner, lanes: Sequence[Lane]) -> None:
        self._runner = runner
        self._lanes = lanes

    def walk(self, batch: Sequence[Walk]) -> None:
        self._runner.run(self._walk(batch))

    async def _walk(self, batch: Sequence[Walk]) -> None:
        async with asyncio.TaskGroup() as group:
            for lane, walk in zip(self._lanes, batch, strict=True):
                group.create_task(check(lane, walk))


@pytest.fixture(scope="module")
def lanes(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lanes]:
    with asyncio.Runner() as runner:
        running = opened(control_plane, tmp_path_factory.mktemp("walks"), LANES)
        yield Lanes(runner, runner.run(running.__aenter__()))
        runner.run(running.__aexit__(None, None, None))


@settings(max_examples=100, derandomize=True, database=None)
@given(walk=walks())
def test_every_resource_of_a_walk_is_valid(walk: Walk) -> None:
    assert [problem for body in walk.resources if (problem := refused_here(body))] == []


@pytest.mark.timeout(7200 if FULL else 900)
@settings(
    max_examples=WALKS // LANES,
    phases=[Phase.generate],  # a walk takes seconds; a smaller one that fails is not looked for
    suppress_health_check=list(HealthCheck),
    deadline=None,
    derandomize=True,
    database=None,
)
@given(batch=st.lists(walks(), min_size=LANES, max_size=LANES))
def test_a_walk_ends_where_a_fresh_creation_begins(lanes: Lanes, batch: list[Walk]) -> None:
    lanes.walk(batch)


async def check(lane: Lane, walk: Walk) -> None:
    """Walks, looks, begins anew from the last spec, and compares."""
    for body, patient in zip(walk.resources, walk.patient, strict=True):
        await lane.apply(body)
        if patient:
            await lane.settle()
    await lane.settle()
    service = validate_service(walk.resources[-1], "walk")
    walked = await lane.children()
    await is_idle(lane)
    await lane.clear()
    await lane.apply(walk.resources[-1])
    await lane.settle()
    fresh = await lane.children()
    await lane.clear()
    assert difference(scaled_alike(walked, service), scaled_alike(fresh, service)) == [], walk


async def is_idle(lane: Lane) -> None:
    """A further reconcile writes nothing."""
    since = lane.audit.position()
    await lane.touch(uuid.uuid4().hex)
    await asyncio.sleep(QUIET_SECONDS)
    assert lane.writes(since) == {}


def scaled_alike(found: Children, service: MultimodalService) -> dict[tuple[str, str], Any]:
    """``found`` without the number of pods where an autoscaler has it, which must be in bounds."""
    alike: dict[tuple[str, str], Any] = dict(found)
    for tier in service.spec.topology.tiers:
        autoscaling = service.spec.tier(tier).autoscaling
        key = ("Deployment", f"{NAME}-{tier}")
        if autoscaling is not None and key in alike:
            body = alike[key]
            replicas = body["spec"]["replicas"]
            assert autoscaling.min <= replicas <= autoscaling.max
            rest = {name: value for name, value in body["spec"].items() if name != "replicas"}
            alike[key] = {**body, "spec": rest}
    return alike
