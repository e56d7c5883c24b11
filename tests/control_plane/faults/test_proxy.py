"""The faulting proxy against the real API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cluster.api import Api, ApiError
from cluster.kubectl import Cluster
from cluster.waiting import eventually
from control_plane.faults import answers, watches
from control_plane.faults.proxy import FaultProxy, Trap, When

WAIT_SECONDS = 60.0


@pytest.fixture
async def proxy(cluster: Cluster, tmp_path: Path) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(cluster.kubeconfig, tmp_path) as running:
        yield running


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[Api]:
    async with Api(proxy.kubeconfig) as api:
        yield api


@pytest.fixture
async def server(cluster: Cluster) -> AsyncIterator[Api]:
    async with Api(cluster.kubeconfig) as api:
        yield api


@pytest.fixture
def collection(namespace: str) -> str:
    """A collection that nothing but the test writes to."""
    return f"/api/v1/namespaces/{namespace}/limitranges"


def limits(name: str, note: str = "") -> dict[str, Any]:
    metadata = {"name": name, "annotations": {"note": note}}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": []}}


class Seen:
    """What a watch through the proxy has told, as pairs of type and name or error code."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.ended = asyncio.Event()

    async def follow(self, api: Api, path: str, since: str) -> None:
        async for event in api.watch(path, since=since):
            metadata = event["object"].get("metadata", {})
            name = metadata.get("name") or str(event["object"].get("code", ""))
            self.events.append((event["type"], name))
        self.ended.set()

    async def until(self, count: int) -> None:
        await eventually(lambda: len(self.events) >= count, f"{count} events", seconds=WAIT_SECONDS)


@asynccontextmanager
async def watching(api: Api, path: str, proxy: FaultProxy) -> AsyncIterator[Seen]:
    seen = Seen()
    listed = await api.get(path)
    task = asyncio.create_task(seen.follow(api, path, listed["metadata"]["resourceVersion"]))
    await eventually(lambda: proxy.streams > 0, "an open watch", seconds=WAIT_SECONDS, of=task)
    yield seen
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_calls_pass_through_and_writes_are_counted(
    proxy: FaultProxy, client: Api, server: Api, collection: str
) -> None:
    await client.create(collection, limits("one"))
    await client.merge(f"{collection}/one", {"metadata": {"annotations": {"note": "new"}}})
    assert (await server.get(f"{collection}/one"))["metadata"]["annotations"]["note"] == "new"
    await client.delete(f"{collection}/one")
    assert await client.find(f"{collection}/one") is None
    texts = ["POST limitranges", "PATCH limitranges/one", "DELETE limitranges/one"]
    assert [call.text for call in proxy.writes] == texts
    assert [call.number for call in proxy.writes] == [1, 2, 3]


@pytest.mark.parametrize("when", When)
async def test_a_trap_loses_the_answer_of_its_write_and_closes(
    proxy: FaultProxy, client: Api, server: Api, collection: str, when: When
) -> None:
    sprung = asyncio.Event()

    async def spring() -> None:
        sprung.set()

    proxy.trap = Trap(2, when, spring)
    await client.create(collection, limits("one"))
    with pytest.raises(aiohttp.ClientError):
        await client.create(collection, limits("two"))
    assert sprung.is_set()
    assert (await server.find(f"{collection}/two") is not None) == (when is When.AFTER)
    with pytest.raises(aiohttp.ClientError):
        await client.create(collection, limits("three"))
    proxy.heal()
    await client.create(collection, limits("four"))
    assert await server.find(f"{collection}/three") is None


async def test_a_trap_that_does_not_close_loses_one_answer_alone(
    proxy: FaultProxy, client: Api, collection: str
) -> None:
    proxy.trap = Trap(1, When.AFTER, _nothing, closes=False)
    with pytest.raises(aiohttp.ClientError):
        await client.create(collection, limits("one"))
    with pytest.raises(ApiError, match="AlreadyExists"):
        await client.create(collection, limits("one"))


async def _nothing() -> None:
    return


async def test_a_refusal_tells_when_to_come_again(
    proxy: FaultProxy, client: Api, collection: str
) -> None:
    proxy.answers = answers.Refuse(429, "TooManyRequests", retry_after=3)
    async with aiohttp.ClientSession() as session:
        url = client.url + collection
        async with session.get(url) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "3")
        async with session.get(url, params={"watch": "true"}) as answer:
            assert answer.status == 429
    proxy.heal()
    assert await client.items(collection) == []


async def test_slow_answers_take_longer(proxy: FaultProxy, client: Api, collection: str) -> None:
    proxy.answers = answers.Slow(0.5)
    started = time.monotonic()
    await client.items(collection)
    assert time.monotonic() - started > 0.5


async def test_a_black_hole_answers_nothing_until_it_is_lifted(
    proxy: FaultProxy, client: Api, collection: str
) -> None:
    proxy.answers = hole = answers.BlackHole()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await client.items(collection)
    waiting = asyncio.create_task(client.items(collection))
    await asyncio.sleep(0.2)
    hole.lift()
    assert await waiting == []


async def test_an_old_list_is_followed_by_all_that_came_after_it(
    proxy: FaultProxy, client: Api, server: Api, collection: str
) -> None:
    assert await client.items(collection) == []
    await server.create(collection, limits("one"))
    proxy.answers = old = answers.OldLists(proxy.lists)
    async with watching(client, collection, proxy) as seen:
        await seen.until(1)
    assert seen.events == [("ADDED", "one")]
    assert old.served == 1


async def test_events_pass_one_by_one_as_they_come(
    proxy: FaultProxy, client: Api, server: Api, collection: str
) -> None:
    async with watching(client, collection, proxy) as seen:
        for number in range(3):
            await server.create(collection, limits(f"e{number}", "x" * 200_000))
            await seen.until(number + 1)
    assert seen.events == [("ADDED", "e0"), ("ADDED", "e1"), ("ADDED", "e2")]


async def test_dropped_events_are_lost_and_others_not(
    proxy: FaultProxy, client: Api, server: Api, collection: str
) -> None:
    async with watching(client, collection, proxy) as seen:
        proxy.watches = drop = watches.Drop("limitranges")
        await server.create(collection, limits("lost"))
        await eventually(lambda: drop.dropped, "a dropped event", seconds=WAIT_SECONDS)
        proxy.watches = watches.Drop("pods")
        await server.create(collection, limits("kept"))
        await seen.until(1)
    assert seen.events == [("ADDED", "kept")]


async def test_delayed_events_come_later_and_in_order(
    proxy: FaultProxy, client: Api, server: Api, collection: str
) -> None:
    proxy.watches = watches.Delay(0.5)
    async with watching(client, collection, proxy) as seen:
        started = time.monotonic()
        await server.create(collection, limits("one"))
        await server.create(collection, limits("two"))
        await seen.until(2)
    assert time.monotonic() - started > 1
    assert [name for _, name in seen.events] == ["one", "two"]


async def test_duplicated_and_old_events_come_again(
    proxy: FaultProxy, client: Api, server: Api, collection: str
) -> None:
    async with watching(client, collection, proxy) as seen:
        proxy.watches = watches.Duplicate()
        await server.create(collection, limits("one"))
        await seen.until(2)
        proxy.watches = old = watches.OldVersions()
        for note in ("a", "b"):
            await server.merge(f"{collection}/one", {"metadata": {"annotations": {"note": note}}})
        await seen.until(5)
    assert [type_ for type_, _ in seen.events] == ["ADDED", "ADDED", *["MODIFIED"] * 3]
    assert old.replayed == 1


async def test_kinds_overtake_each_other_but_no_kind_itself(
    proxy: FaultProxy, client: Api, server: Api, collection: str
) -> None:
    proxy.watches = watches.ReorderKinds(0.2, seed=1)
    async with watching(client, collection, proxy) as seen:
        for number in range(4):
            await server.create(collection, limits(f"e{number}"))
        await seen.until(4)
    assert [name for _, name in seen.events] == ["e0", "e1", "e2", "e3"]


async def test_gone_in_mid_stream_ends_it(
    proxy: FaultProxy, client: Api, server: Api, collection: str
) -> None:
    async with watching(client, collection, proxy) as seen:
        proxy.watches = watches.Fail(watches.GONE, "Expired")
        await server.create(collection, limits("one"))
        async with asyncio.timeout(WAIT_SECONDS):
            await seen.ended.wait()
    assert seen.events == [("ERROR", "410")]


async def test_a_stream_can_end_without_a_word(
    proxy: FaultProxy, client: Api, server: Api, collection: str
) -> None:
    async with watching(client, collection, proxy) as seen:
        proxy.watches = watches.End()
        await server.create(collection, limits("one"))
        async with asyncio.timeout(WAIT_SECONDS):
            await seen.ended.wait()
    assert seen.events == []


async def test_a_silent_stream_stays_silent_when_the_fault_is_over(
    proxy: FaultProxy, client: Api, server: Api, collection: str
) -> None:
    async with watching(client, collection, proxy) as seen:
        proxy.watches = silent = watches.Silent()
        await server.create(collection, limits("one"))
        await eventually(lambda: silent.silenced, "a silent stream", seconds=WAIT_SECONDS)
        proxy.heal()
        await server.create(collection, limits("two"))
        await asyncio.sleep(0.5)
        assert (seen.events, proxy.streams) == ([], 1)
        async with watching(client, collection, proxy) as another:
            await server.create(collection, limits("three"))
            await another.until(1)


async def test_open_streams_can_be_interrupted_even_when_they_are_silent(
    proxy: FaultProxy, client: Api, server: Api, collection: str
) -> None:
    async with watching(client, collection, proxy) as seen:
        proxy.watches = silent = watches.Silent()
        await server.create(collection, limits("one"))
        await eventually(lambda: silent.silenced, "a silent stream", seconds=WAIT_SECONDS)
        await proxy.interrupt(watches.error(watches.GONE, "Expired"))
        async with asyncio.timeout(WAIT_SECONDS):
            await seen.ended.wait()
    assert seen.events == [("ERROR", "410")]
    assert proxy.streams == 0
