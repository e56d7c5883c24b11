"""What watches missed is found by lists: against an API server in memory, without any watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer, Call, refusing, status
from cluster.waiting import eventually
from prometheus_client import REGISTRY
from triptych_operator.cluster import connection
from triptych_operator.cluster.api import METADATA_PAGE, Api
from triptych_operator.cluster.kinds import DEPLOYMENT, OBSERVED, POD, SERVICE_RESOURCE, Kind
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.controller.audit import Audit
from triptych_operator.observed.store import ServiceKey, Store

SHAPES = ServiceKey("n", "shapes")
PATIENCE = 60.0


class Audited:
    """An audit of a server, and whom it woke."""

    def __init__(self, server: ApiServer, api: Api, scopes: Sequence[str | None]) -> None:
        self.server = server
        self.store = Store()
        self.woken: list[ServiceKey] = []
        self.audit = Audit(api, self.store, scopes, 0.3, self.woken.append)

    def put(self, kind: Kind = DEPLOYMENT, namespace: str = "n", at: int = 1) -> dict[str, Any]:
        return self.server.put(kind, thing(kind, namespace, at))

    async def compare(self, kind: Kind = DEPLOYMENT) -> list[ServiceKey]:
        self.woken.clear()
        await self.audit.compare(kind)
        return list(self.woken)


def thing(kind: Kind, namespace: str = "n", at: int = 1) -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": namespace, "name": "shapes"}
    if kind != SERVICE_RESOURCE:
        metadata["labels"] = {
            "app.kubernetes.io/managed-by": "triptych",
            "app.kubernetes.io/instance": "shapes",
        }
    return {"metadata": metadata, "spec": {"at": at}}


def missed() -> float:
    """Changes of Deployments that no watch told of, as the metrics have them."""
    name = "triptych_operator_missed_changes_total"
    return REGISTRY.get_sample_value(name, {"kind": "Deployment"}) or 0.0


@asynccontextmanager
async def audited(folder: Path, *scopes: str) -> AsyncIterator[Audited]:
    async with (
        ApiServer() as server,
        Api(await connection.load(server.kubeconfig(folder))) as api,
    ):
        yield Audited(server, api, scopes or (None,))


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Audited]:
    async with audited(tmp_path) as made:
        yield made


async def test_it_fills_the_store_with_every_kind(one: Audited) -> None:
    for kind in OBSERVED:
        one.put(kind)
    await one.audit.fill()
    assert one.store.services() == [SHAPES]
    assert {child.key.kind for child in one.store.children(SHAPES)} == {
        kind.name for kind in OBSERVED if kind != SERVICE_RESOURCE
    }
    assert one.audit.finished_at > 0


async def test_a_list_that_is_refused_fills_nothing_silently(one: Audited) -> None:
    one.server.faults.append(refusing("GET Pod", lambda: status(403, "Forbidden", "no")))
    with pytest.raises(Refusal, match="no"):
        await one.audit.fill()
    assert one.audit.finished_at == 0


@pytest.mark.parametrize("kind", OBSERVED, ids=lambda kind: kind.plural)
async def test_nothing_missed_wakes_nobody(one: Audited, kind: Kind) -> None:
    one.put(kind)
    await one.audit.fill()
    read = len(one.server.calls)
    assert await one.compare(kind) == []
    [listed] = one.server.calls[read:]
    assert "PartialObjectMetadataList" in listed.headers["Accept"], "it lists metadata alone"


async def test_an_object_that_was_missed_is_read_and_wakes_its_resource(one: Audited) -> None:
    one.put()
    assert await one.compare() == [SHAPES]
    [child] = one.store.children(SHAPES)
    assert child.body()["spec"] == {"at": 1}
    assert await one.compare() == []


async def test_an_update_that_was_missed_is_read(one: Audited) -> None:
    one.put()
    await one.audit.fill()
    one.put(at=2)
    counted = missed()
    assert await one.compare() == [SHAPES]
    assert missed() == counted + 1
    [child] = one.store.children(SHAPES)
    assert child.body()["spec"] == {"at": 2}


async def test_a_deletion_that_was_missed_is_noticed(one: Audited) -> None:
    one.put()
    await one.audit.fill()
    one.server.remove(DEPLOYMENT, "n", "shapes")
    assert await one.compare() == [SHAPES]
    assert one.store.children(SHAPES) == []


async def test_a_child_that_lost_its_labels_is_noticed(one: Audited) -> None:
    one.put()
    await one.audit.fill()
    one.server.put(DEPLOYMENT, {"metadata": {"namespace": "n", "name": "shapes"}})
    assert await one.compare() == [SHAPES]
    assert one.store.children(SHAPES) == []


async def test_an_object_that_moved_to_another_resource_is_noticed_by_both(one: Audited) -> None:
    one.put(POD)
    await one.audit.fill()
    moved = thing(POD)
    moved["metadata"]["labels"]["app.kubernetes.io/instance"] = "other"
    one.server.put(POD, moved)
    assert sorted(await one.compare(POD)) == [ServiceKey("n", "other"), SHAPES]
    assert one.store.children(SHAPES) == []


async def test_what_is_younger_than_the_list_stays(one: Audited) -> None:
    """It was made after the list was, by an answer or an event that came first."""
    await one.audit.fill()
    young = thing(DEPLOYMENT)
    young["metadata"] |= {"uid": "u", "resourceVersion": str(one.server.version + 5)}
    one.store.put("Deployment", young)
    assert await one.compare() == []
    assert len(one.store.children(SHAPES)) == 1


async def test_a_list_that_is_as_it_was_is_compared_with_what_is_known_now(one: Audited) -> None:
    """Its pages are not read again, so that nothing may depend on that."""
    made = one.put()
    assert await one.compare() == [SHAPES]
    assert await one.compare() == []
    one.store.remove("Deployment", made)  # as by an event that was not true
    assert await one.compare() == [SHAPES]
    assert len(one.store.children(SHAPES)) == 1
    strange = {**made, "metadata": {**made["metadata"], "name": "strange"}}
    one.store.put("Deployment", strange)
    assert await one.compare() == [SHAPES]
    assert [child.key.name for child in one.store.children(SHAPES)] == ["shapes"]


async def test_a_newer_object_in_the_store_is_not_read_again(one: Audited) -> None:
    made = one.put()
    newer = {**made, "metadata": {**made["metadata"], "resourceVersion": "999"}}
    one.store.put("Deployment", newer)
    assert await one.compare() == []
    assert [call.name for call in one.server.calls] == [""]


async def test_an_object_that_goes_between_list_and_read_is_nothing(one: Audited) -> None:
    one.put()

    async def vanish(call: Call) -> None:
        if call.name:
            one.server.objects.clear()

    one.server.faults.append(vanish)
    assert await one.compare() == []
    assert one.store.children(SHAPES) == []


async def test_only_its_own_namespaces_are_listed_and_forgotten(tmp_path: Path) -> None:
    async with audited(tmp_path, "n", "m") as one:
        for namespace in ("n", "m", "foreign"):
            one.put(namespace=namespace)
        await one.audit.fill()
        assert one.store.children(ServiceKey("foreign", "shapes")) == []
        assert {call.namespace for call in one.server.calls} == {"n", "m"}
        one.server.remove(DEPLOYMENT, "n", "shapes")
        assert await one.compare() == [SHAPES]
        assert len(one.store.children(ServiceKey("m", "shapes"))) == 1


async def test_a_list_of_several_pages_is_compared_whole(one: Audited) -> None:
    for number in range(METADATA_PAGE + 5):
        made = thing(POD)
        made["metadata"]["name"] = f"pod-{number:04}"
        one.server.put(POD, made)
    await one.audit.fill()
    one.server.remove(POD, "n", f"pod-{METADATA_PAGE + 2:04}")
    assert await one.compare(POD) == [SHAPES]
    assert len(one.store.children(SHAPES)) == METADATA_PAGE + 4


async def until(true: Callable[[], object], task: asyncio.Task[None]) -> None:
    await eventually(true, "what the audit should find", seconds=PATIENCE, of=task)


async def test_it_goes_through_every_kind_again_and_again(one: Audited) -> None:
    task = asyncio.create_task(one.audit.run())
    await until(lambda: len(one.server.calls) >= 2 * len(OBSERVED), task)
    assert {call.kind for call in one.server.calls} == set(OBSERVED)
    for kind in OBSERVED:
        one.put(kind)
        await until(lambda: len(list(one.store.of_kind(kind.name))), task)  # noqa: B023 - awaited here
    task.cancel()


async def test_a_refusal_ends_nothing_and_does_not_count_as_done(one: Audited) -> None:
    one.server.faults.append(refusing("", lambda: status(500, "InternalError", "no")))
    task = asyncio.create_task(one.audit.run())
    await until(lambda: len(one.server.calls) >= len(OBSERVED) + 1, task)
    assert (task.done(), one.audit.finished_at) == (False, 0)
    one.server.faults.clear()
    await until(lambda: one.audit.finished_at > 0, task)
    task.cancel()


@pytest.mark.parametrize("listed", [POD, SERVICE_RESOURCE])  # of a list of no pods nothing tells
async def test_a_kind_that_a_watch_listed_anew_is_compared_within_a_moment(
    tmp_path: Path, listed: Kind
) -> None:
    async with (
        ApiServer() as server,
        Api(await connection.load(server.kubeconfig(tmp_path))) as api,
    ):
        store, woken = Store(), list[ServiceKey]()
        audit = Audit(api, store, (None,), 3600.0, woken.append)
        server.put(POD, thing(POD))
        await audit.fill()
        server.remove(POD, "n", "shapes")
        task = asyncio.create_task(audit.run())
        audit.soon(listed)
        await until(lambda: woken, task)
        task.cancel()
    assert (woken, store.children(SHAPES)) == ([SHAPES], [])
