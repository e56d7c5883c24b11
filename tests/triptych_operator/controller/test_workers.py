"""Keys that fail, hang or break are tried again, and hold up nobody."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web
from api_server import refusing, slow, status
from children_of import SHAPES, resource, standing
from cluster.waiting import eventually
from desk import Desk
from prometheus_client import REGISTRY
from triptych_operator.cluster.kinds import SERVICE_RESOURCE
from triptych_operator.controller.queue import KeyedQueue
from triptych_operator.controller.workers import work
from triptych_operator.observed.store import ServiceKey

OTHER = ServiceKey("n", "other")
LIMIT = 2.0  # seconds of one reconcile; on a busy machine, too
PATIENCE = 60.0

Queue = KeyedQueue[ServiceKey]


@pytest.fixture
async def queue(desk: Desk) -> AsyncIterator[Queue]:
    """A queue that two workers serve."""
    made: Queue = KeyedQueue(first_retry=0.05, last_retry=0.2)
    workers = [asyncio.create_task(work(made, desk.reconciler.reconcile, LIMIT)) for _ in range(2)]
    yield made
    assert not any(task.done() for task in workers), "no worker ever ends"
    for task in workers:
        task.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    made.close()


def count(outcome: str) -> float:
    """How many looks ended so, as the metrics have it."""
    name = "triptych_operator_reconcile_seconds_count"
    return REGISTRY.get_sample_value(name, {"queue": "reconcile", "outcome": outcome}) or 0.0


def complete(desk: Desk, name: str) -> Callable[[], bool]:
    """Whether all Deployments of a resource stand."""
    return lambda: sum(one.startswith(name) for one in standing(desk.server, "Deployment")) == 4


async def test_a_key_that_is_due_is_reconciled(desk: Desk, queue: Queue) -> None:
    resource(desk.server)
    await desk.observe()
    before = count("ok")
    queue.add(SHAPES)
    await eventually(complete(desk, "shapes"), "the children", seconds=PATIENCE)
    await eventually(lambda: count("ok") == before + 1, "the count", seconds=PATIENCE)


FAULTS = {
    "refused": lambda: refusing("PATCH Deployment shapes", lambda: status(403, "Forbidden", "no")),
    "timeout": lambda: slow("PATCH Deployment shapes", 60.0),
    "error": lambda: refusing("PATCH Deployment shapes", lambda: web.json_response({"odd": 1})),
}


@pytest.mark.parametrize("outcome", FAULTS)
async def test_a_resource_that_fails_holds_up_no_other_and_heals(
    desk: Desk, queue: Queue, outcome: str
) -> None:
    for name in ("shapes", "other"):
        resource(desk.server, name=name)
    await desk.observe()
    desk.server.faults.append(FAULTS[outcome]())
    before = count(outcome)
    queue.add(SHAPES)
    queue.add(OTHER)
    await eventually(complete(desk, "other"), "the other's children", seconds=PATIENCE)
    await eventually(lambda: count(outcome) >= before + 2, "retries", seconds=PATIENCE)
    assert not complete(desk, "shapes")()
    desk.server.faults.clear()
    await eventually(complete(desk, "shapes"), "its children", seconds=PATIENCE)


async def test_a_server_that_asks_for_time_gets_it(desk: Desk, queue: Queue) -> None:
    resource(desk.server)
    await desk.observe()
    wait = {"Retry-After": "1"}
    desk.server.faults.append(
        refusing("PATCH ServiceAccount", lambda: status(429, "TooMany", "busy", **wait), times=1)
    )
    queue.add(SHAPES)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await eventually(complete(desk, "shapes"), "the children", seconds=PATIENCE)
    assert loop.time() - began >= 1


async def test_what_changes_during_the_work_is_looked_at_once_more(
    desk: Desk, queue: Queue
) -> None:
    resource(desk.server)
    await desk.observe()

    async def change(call: object) -> None:
        """The user changes the resource while its first children are written."""
        desk.server.faults.clear()
        made = resource(desk.server, tiers__decode__replicas=5)
        if desk.store.put(SERVICE_RESOURCE.name, made):
            queue.add(SHAPES)

    desk.server.faults.append(change)
    queue.add(SHAPES)

    def scaled() -> bool:
        found = desk.server.objects.get(("Deployment", "n", "shapes-decode"))
        return found is not None and found.body["spec"]["replicas"] == 5

    await eventually(scaled, "the second look", seconds=PATIENCE)


async def test_looks_that_wait_for_nothing_let_others_have_their_turns() -> None:
    looked: list[ServiceKey] = []

    async def look(key: ServiceKey) -> None:
        looked.append(key)

    queue: Queue = KeyedQueue(first_retry=1.0, last_retry=1.0)
    for number in range(100):
        queue.add(ServiceKey("n", str(number)))
    worker = asyncio.create_task(work(queue, look, LIMIT))
    seen = [0]
    while len(looked) < 100:
        await asyncio.sleep(0)
        seen.append(len(looked))
    worker.cancel()
    steps = [after - before for before, after in itertools.pairwise(seen)]
    assert max(steps) == 1
