"""Events of the watches, one by one: what is kept of them, and whom they wake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from kopf._cogs.clients.watching import Bookmark
from triptych_operator.cluster.kinds import DEPLOYMENT, OBSERVED, POD, SERVICE_RESOURCE, Kind
from triptych_operator.controller.edge import CHILDREN_SELECTOR, Edge, selector
from triptych_operator.observed.store import ServiceKey, Store

SHAPES = ServiceKey("n", "shapes")


class Taken:
    """An edge, and what it told."""

    def __init__(self) -> None:
        self.store = Store()
        self.changed: list[ServiceKey] = []
        self.listed: list[Kind] = []
        self.edge = Edge(self.store, changed=self.changed.append, listed=self.listed.append)

    def take(self, kind: Kind, event: str | None, version: int, uid: str = "u") -> list[ServiceKey]:
        """Takes an event in; whom it woke."""
        self.changed.clear()
        self.edge.take(kind, event, body(kind, version, uid))
        return list(self.changed)

    async def hear(self, kind: Kind, *seen: dict[str, Any]) -> list[ServiceKey]:
        """Takes in what a watch of ``kind`` tells of new objects; whom it woke."""
        self.changed.clear()
        events = [{"type": "ADDED", "object": one} for one in seen]
        await self.edge.take_all(kind, stream(events))
        return list(self.changed)


async def stream(events: Sequence[Any]) -> AsyncIterator[Any]:
    for event in events:
        yield event


def body(kind: Kind, version: int, uid: str = "u") -> dict[str, Any]:
    metadata = {"namespace": "n", "name": "shapes", "uid": uid, "resourceVersion": str(version)}
    if kind != SERVICE_RESOURCE:
        metadata |= {"name": "shapes-decode", "labels": {"app.kubernetes.io/instance": "shapes"}}
    return {"metadata": metadata, "spec": {"at": version}}


@pytest.mark.parametrize("kind", [SERVICE_RESOURCE, DEPLOYMENT])
def test_a_new_object_wakes_its_resource(kind: Kind) -> None:
    one = Taken()
    assert one.take(kind, "ADDED", 1) == [SHAPES]
    assert one.take(kind, "MODIFIED", 2) == [SHAPES]
    assert one.listed == []


def test_what_is_known_already_wakes_nobody() -> None:
    one = Taken()
    one.take(DEPLOYMENT, "ADDED", 2)
    assert one.take(DEPLOYMENT, "MODIFIED", 2) == []
    assert one.take(DEPLOYMENT, "MODIFIED", 1) == []


def test_a_deletion_wakes_its_resource_once() -> None:
    one = Taken()
    one.take(DEPLOYMENT, "ADDED", 1)
    assert one.take(DEPLOYMENT, "DELETED", 2) == [SHAPES]
    assert one.take(DEPLOYMENT, "DELETED", 2) == []
    assert one.store.children(SHAPES) == []


def test_the_deletion_of_a_predecessor_wakes_nobody() -> None:
    one = Taken()
    one.take(DEPLOYMENT, "ADDED", 5, uid="second")
    assert one.take(DEPLOYMENT, "DELETED", 4, uid="first") == []
    assert len(one.store.children(SHAPES)) == 1


def test_what_a_list_shows_is_taken_in_and_has_the_kind_compared() -> None:
    one = Taken()
    assert one.take(DEPLOYMENT, None, 1) == [SHAPES]
    assert one.listed == [DEPLOYMENT]
    assert one.take(DEPLOYMENT, None, 1) == []
    assert one.listed == [DEPLOYMENT, DEPLOYMENT], "a list may hide deletions"


@pytest.mark.parametrize("event", ["ADDED", "MODIFIED", "DELETED", None])
def test_objects_that_belong_to_no_resource_are_left_alone(event: str | None) -> None:
    one = Taken()
    stranger = {"metadata": {"namespace": "n", "name": "x", "labels": {"app": "x"}}}
    Edge(one.store, changed=one.changed.append, listed=one.listed.append).take(POD, event, stranger)
    assert (one.changed, one.listed, list(one.store.of_kind("Pod"))) == ([], [], [])


async def test_of_an_event_that_cannot_be_read_the_log_tells_and_the_watch_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = Taken()
    unreadable: dict[str, Any] = {"metadata": {"labels": {"app.kubernetes.io/instance": "shapes"}}}
    assert await one.hear(DEPLOYMENT, unreadable, body(DEPLOYMENT, 1)) == [SHAPES]
    assert "an event of deployments was not taken in" in caplog.text
    assert len(one.store.children(SHAPES)) == 1


async def test_bookmarks_tell_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    one = Taken()
    marked = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
    await one.edge.take_all(SERVICE_RESOURCE, stream([Bookmark.LISTED, marked]))
    assert (one.changed, one.store.services(), caplog.text) == ([], [], "")


@pytest.mark.parametrize("kind", OBSERVED, ids=lambda kind: kind.plural)
def test_only_our_own_children_are_asked_for(kind: Kind) -> None:
    assert selector(kind) == ("" if kind == SERVICE_RESOURCE else CHILDREN_SELECTOR)
    assert CHILDREN_SELECTOR == "app.kubernetes.io/managed-by=triptych,app.kubernetes.io/instance"
