"""Events of our own writes that come before their answers, and changes by others meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from api_server import Call, status
from children_of import SHAPES, body, resource
from desk import Desk
from triptych_operator.cluster.kinds import SERVICE_RESOURCE
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.controller.edge import Edge
from triptych_operator.observed.store import ServiceKey

CHILD = "PATCH Service shapes-decode"
STATUS = "PATCH MultimodalService shapes status"
PORTS = {"spec": {"ports": [{"port": 1}]}}


def told_early(desk: Desk, text: str, change: Mapping[str, Any] | None = None) -> list[ServiceKey]:
    """Has the watch tell of the write ``text`` before its answer comes, and of a ``change`` by
    somebody else after that; whom the watch woke."""
    woken: list[ServiceKey] = []
    edge = Edge(desk.store, changed=woken.append, listed=lambda _: None)

    async def early(call: Call) -> web.StreamResponse | None:
        if call.text != text:
            return None
        answer = desk.server.put(call.kind, call.body, manager="triptych")
        edge.take(call.kind, "MODIFIED", answer)
        if change is not None:
            theirs = {**change, "metadata": {"namespace": "n", "name": call.name}}
            edge.take(call.kind, "MODIFIED", desk.server.put(call.kind, theirs))
        return web.json_response(answer)

    desk.server.faults.append(early)
    return woken


@pytest.mark.parametrize("text", [CHILD, STATUS])
async def test_an_event_of_a_write_that_comes_before_its_answer_is_no_news(
    desk: Desk, text: str
) -> None:
    resource(desk.server)
    woken = told_early(desk, text)
    await desk.reconcile()
    assert (woken, desk.changed) == ([], [])
    desk.server.calls.clear()
    await desk.reconciler.reconcile(SHAPES)
    assert desk.server.writes == []


async def test_a_child_that_others_change_before_the_answer_comes_is_looked_at_again(
    desk: Desk,
) -> None:
    resource(desk.server)
    woken = told_early(desk, CHILD, PORTS)
    await desk.reconcile()
    assert (woken, desk.changed) == ([], [SHAPES])
    desk.server.faults.clear()
    desk.server.calls.clear()
    await desk.reconciler.reconcile(SHAPES)
    assert desk.server.writes[0] == CHILD
    assert body(desk.server, "Service", "shapes-decode")["spec"]["ports"] != PORTS["spec"]["ports"]


async def test_a_resource_that_is_changed_before_the_answer_comes_is_looked_at_again(
    desk: Desk,
) -> None:
    resource(desk.server)
    woken = told_early(desk, STATUS, {"spec": {"tiers": {"decode": {"replicas": 3}}}})
    await desk.reconcile()
    assert (woken, desk.changed) == ([], [SHAPES])


async def test_a_resource_that_is_changed_before_its_status_is_written_is_looked_at_at_once(
    desk: Desk,
) -> None:
    """The server refuses the status, and nobody has to wait for the retry."""
    resource(desk.server)
    edge = Edge(desk.store, changed=lambda _: None, listed=lambda _: None)

    async def change(call: Call) -> web.StreamResponse | None:
        if call.text != STATUS:
            return None
        edge.take(SERVICE_RESOURCE, "MODIFIED", resource(desk.server, tiers__decode__replicas=3))
        return status(409, "Conflict", "the object has been modified")

    desk.server.faults.append(change)
    with pytest.raises(Refusal, match="has been modified"):
        await desk.reconcile()
    assert desk.changed == [SHAPES]
