"""What kopf is known for, and cannot do to us. docs/adr/0010 has the table of all traps.

Here are those that take a real API server and that no other test of this folder is about.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from cluster.api import Object
from cluster.children import COLLECTIONS, PODS
from cluster.control_plane import ControlPlane
from cluster.kubectl import Cluster
from cluster.operator_process import IMAGE
from cluster.ports import free_port
from cluster.waiting import eventually
from control_plane.faults.answers import Refuse
from control_plane.faults.proxy import FaultProxy
from control_plane.served import SECONDS, Served, namespace_of_its_own, served
from triptych_contract.errors import Unavailable
from triptych_operator.cluster.kinds import OBSERVED
from triptych_operator.controller.run import run
from triptych_operator.controller.settings import Listen, OperatorSettings, Pace
from triptych_operator.desired.platform import Platform

WATCH: Final = "watch of "  # how the tasks of the watches are named
PEERS: Final = "kopfpeerings"


async def everything(one: Served) -> list[Object]:
    """The resource and all that it made, pods included."""
    paths = [one.path(kind) for kind in ("MultimodalService", *COLLECTIONS)]
    lists = await asyncio.gather(*map(one.api.items, [*paths, PODS.format(one.namespace)]))
    return [item for items in lists for item in items]


async def test_kopf_leaves_no_finalizer_no_annotation_and_no_event(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Finalizers block deletion while the operator is down; annotations overflow; Events flood."""
    async with served(cluster, tmp_path) as one:
        await one.apply()
        await one.until("Ready", "True")
        await one.apply(tiers__decode__template={"spec": {"restartPolicy": "Sometimes"}})
        await one.until("Stalled", "True")  # of which the operator logs a warning at every retry
        await one.apply()
        await one.until("Ready", "True")
        for item in await everything(one):
            metadata = item["metadata"]
            assert "finalizers" not in metadata, metadata["name"]
            assert not [key for key in metadata.get("annotations", {}) if "kopf" in key]
            managers = {entry["manager"] for entry in metadata.get("managedFields", ())}
            assert not {name for name in managers if "kopf" in name.lower()}
        await one.told(("Normal", "Ready"), ("Warning", "Invalid"), ("Normal", "Ready"))
        events = await one.api.items(one.path("Event"))
        ours = [item for item in events if item["regarding"]["kind"] == "MultimodalService"]
        assert {item["reportingController"] for item in ours} == {"triptych.dev/operator"}


async def test_no_peering_resource_is_needed_or_made(cluster: Cluster) -> None:
    """Peers of equal priority all pause, so there are none: a Lease says who acts."""
    assert PEERS not in cluster.kubectl("api-resources", "-o=name")


@asynccontextmanager
async def within(
    kubeconfig: Path, namespace: str, *, audit: float = 3600.0, listen: Listen | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """The operator in this very process, whose tasks a test can see; by default no audit helps."""
    settings = OperatorSettings(
        Platform(image=IMAGE),
        kubeconfig=kubeconfig,
        namespaces=(namespace,),
        listen=listen,
        pace=Pace(audit=audit),
        flush_caches=False,
    )
    stop = asyncio.Event()
    task = asyncio.create_task(run(settings, stop))
    try:
        await eventually(
            lambda: len(watches()) == len(OBSERVED), "all watches", seconds=SECONDS, of=task
        )
        yield task
    finally:
        stop.set()
        await asyncio.wait([task], timeout=SECONDS)


def watches() -> list[asyncio.Task[Any]]:
    """The tasks that watch."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith(WATCH)]


@pytest.mark.parametrize("kind", ["pods", "deployments", "multimodalservices"])
async def test_the_process_ends_when_one_of_its_watches_dies(cluster: Cluster, kind: str) -> None:
    """It would live on, deaf to that kind; a new process is not."""
    async with (
        namespace_of_its_own(cluster) as (_, namespace),
        within(cluster.kubeconfig, namespace) as task,
    ):
        [watch] = [one for one in watches() if kind in one.get_name()]
        watch.cancel()
        with pytest.raises(Unavailable, match="watch"):
            async with asyncio.timeout(SECONDS):
                await task


async def health(port: int) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/healthz") as answer,
    ):
        return answer.status, await answer.text()


async def test_health_fails_while_nothing_can_be_listed(cluster: Cluster, tmp_path: Path) -> None:
    """Watches that are refused are tried again for minutes; meanwhile it knows nothing new."""
    port = free_port()
    async with (
        namespace_of_its_own(cluster) as (_, namespace),
        FaultProxy(cluster.kubeconfig, tmp_path) as proxy,
        within(proxy.kubeconfig, namespace, audit=0.5, listen=Listen("127.0.0.1", port)) as task,
    ):

        async def status(wanted: int) -> bool:
            return (await health(port))[0] == wanted

        await eventually(lambda: status(200), "a first look", seconds=SECONDS)
        assert (await health(port))[1] == "ok\n"
        proxy.answers = Refuse(500, "InternalError")
        await eventually(lambda: status(503), "what is wrong", seconds=SECONDS)
        assert "nothing could be listed for" in (await health(port))[1]
        proxy.heal()
        await eventually(lambda: status(200), "its recovery", seconds=SECONDS)
        assert not task.done()


async def test_a_burst_of_changes_ends_with_the_last_one(cluster: Cluster, tmp_path: Path) -> None:
    """Events that come together were skipped, or handled twice: they only say where to look."""
    async with served(cluster, tmp_path) as one:
        await one.apply()
        await one.until("Ready", "True")
        for number in range(30):
            await one.apply(tiers__decode__replicas=1 + number % 5)
        await one.apply(tiers__decode__replicas=4)
        await one.until("Ready", "True")
        found = await one.api.get(one.path("Deployment", "shapes-decode"))
        assert found["spec"]["replicas"] == 4
        assert (await one.resource())["status"]["tiers"][2]["pods"] == "4/4"


async def test_it_outlives_a_restart_of_the_api_server(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with served(control_plane, tmp_path) as one:
        await one.apply()
        await one.until("Ready", "True")
        await asyncio.to_thread(control_plane.restart_api_server)
        assert one.operator.running
        await one.apply(tiers__decode__replicas=2)
        await one.until("Ready", "True")
        await one.api.delete(one.path("Service", "shapes-decode"))

        async def healed() -> bool:
            return await one.api.find(one.path("Service", "shapes-decode")) is not None

        await eventually(healed, "the Service that was deleted", seconds=SECONDS)
        assert one.operator.running


async def test_a_resource_as_large_as_the_schema_allows_is_served(
    cluster: Cluster, tmp_path: Path
) -> None:
    """kopf's copy of a resource in an annotation fails beyond 256 KiB; nothing of ours grows."""
    async with served(cluster, tmp_path) as one:
        annotations = {f"test/{number:02}": "x" * 9_000 for number in range(28)}
        await one.apply(tiers__decode__template={"metadata": {"annotations": annotations}})
        await one.until("Ready", "True")
        assert "annotations" not in (await one.resource())["metadata"]
