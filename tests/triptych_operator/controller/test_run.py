"""The process from its first connection on, as far as no watch is needed for it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import aiohttp
import pytest
from api_server import ApiServer, refusing, status
from children_of import PLATFORM
from cluster.ports import free_port
from cluster.waiting import eventually
from triptych_contract.errors import InvalidRequest
from triptych_operator.cluster.kinds import LEASE
from triptych_operator.controller.run import run
from triptych_operator.controller.settings import Election, Listen, OperatorSettings

PATIENCE = 60.0


async def ends(task: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Asks it to stop, and waits until it has."""
    stop.set()
    async with asyncio.timeout(PATIENCE):
        await task


async def test_without_a_cluster_it_says_so(tmp_path: Path) -> None:
    settings = OperatorSettings(PLATFORM, kubeconfig=tmp_path / "absent")
    with pytest.raises(InvalidRequest, match="no cluster to connect to"):
        await run(settings, asyncio.Event())


async def test_while_another_leads_it_writes_nothing_and_is_healthy(
    server: ApiServer, tmp_path: Path
) -> None:
    port = free_port()
    spec = {"holderIdentity": "other", "renewTime": "x", "leaseDurationSeconds": 3600}
    server.put(LEASE, {"metadata": {"namespace": "n", "name": "triptych-operator"}, "spec": spec})
    settings = OperatorSettings(
        PLATFORM,
        kubeconfig=server.kubeconfig(tmp_path),
        election=Election("n", renew=0.05),
        listen=Listen("127.0.0.1", port),
    )
    stop = asyncio.Event()
    task = asyncio.create_task(run(settings, stop))
    await eventually(lambda: len(server.calls) > 3, "looks at the Lease", seconds=PATIENCE, of=task)
    for path in ("healthz", "readyz"):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/{path}") as answer,
        ):
            assert answer.status == 200
    await ends(task, stop)
    assert {call.text for call in server.calls} == {"GET Lease triptych-operator"}


async def test_it_waits_until_it_can_list_everything_and_says_what_is_missing(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = "the server could not find the requested resource"
    server.faults.append(refusing("GET", lambda: status(404, "NotFound", missing)))
    settings = OperatorSettings(PLATFORM, kubeconfig=server.kubeconfig(tmp_path))
    stop = asyncio.Event()
    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(run(settings, stop))
        await eventually(lambda: caplog.messages, "a word about it", seconds=PATIENCE, of=task)
    assert "cannot begin" in caplog.text
    assert "kubectl apply -f crds/" in caplog.text
    await ends(task, stop)
    assert server.writes == []
