import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager

import grpc
import httpx2 as httpx
import pytest
from cluster.waiting import eventually
from metric_docs import assert_told
from scripted_worker import ScriptedWorker, World
from triptych_contract.config import Endpoints, GatewayConfig, Listen
from triptych_contract.names import Tier, Topology
from triptych_contract.v1.worker_pb2 import DropOthersRequest, HoldingsRequest
from triptych_contract.v1.worker_pb2_grpc import CacheAdminStub

PATH = "/v1/chat/completions"

pytestmark = [pytest.mark.torch, pytest.mark.processes]


@asynccontextmanager
async def started(path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "triptych_gateway", "--config", str(path),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def scripted(identity):
    worker = ScriptedWorker(Tier.FUSED, World(), identity)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


async def until_ready(client: httpx.AsyncClient) -> None:
    async def answers() -> bool:
        return (await client.get("/readyz")).status_code == 200

    await eventually(answers, "a gateway that is ready", seconds=120)


async def test_a_process_announces_itself_serves_and_drains(
    tmp_path, model, identity, picture, ask
):
    async with scripted(identity) as worker:
        path = tmp_path / "gateway.json"
        config = GatewayConfig(
            model=model,
            topology=Topology.FUSED,
            fused=Endpoints(addresses=(worker.address,)),
            listen=Listen(host="127.0.0.1", http_port=0, grpc_port=0, metrics_port=0),
        )
        path.write_text(config.model_dump_json())
        async with started(path) as process:
            addresses = json.loads(await process.stdout.readline())
            assert set(addresses) == {"http", "metrics", "grpc"}
            url = f"http://{addresses['http']}"
            async with httpx.AsyncClient(base_url=url, timeout=60) as client:
                await until_ready(client)
                answer = await client.post(PATH, json=ask("?", picture()))
                assert answer.json()["choices"][0]["message"]["content"] == "It is red."
                await _check_admin(addresses["grpc"], worker.fingerprint)
                metrics = await client.get(f"http://{addresses['metrics']}/metrics")
                assert 'triptych_requests_total{outcome="ok"} 1.0' in metrics.text
                assert_told("gateway", metrics.text)
                await _check_drain(process, client, worker, ask("slow"))
            assert await process.wait() == 0


async def _check_drain(process, client, worker, body) -> None:
    worker.held_up = end = asyncio.Event()
    running = asyncio.create_task(client.post(PATH, json=body))
    await eventually(lambda: worker.running, "a request that runs", seconds=60, of=running)
    process.send_signal(signal.SIGTERM)

    async def drains() -> bool:
        return (await client.get("/readyz")).status_code == 503

    await eventually(drains, "the drain", seconds=60)
    end.set()
    assert (await running).json()["choices"][0]["message"]["content"] == "It is red."


async def _check_admin(address: str, fingerprint: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        admin = CacheAdminStub(channel)
        holdings = (await admin.Holdings(HoldingsRequest())).holdings
        assert [(held.cache, held.fingerprint, held.entries) for held in holdings] == [
            ("processor", fingerprint, 1)
        ]
        dropped = await admin.DropOthers(DropOthersRequest(keep="f" * 64))
        assert (dropped.entries_dropped, dropped.bytes_freed) == (1, holdings[0].bytes)
        assert not dropped.remaining.holdings
        with pytest.raises(grpc.aio.AioRpcError, match="hexadecimal"):
            await admin.DropOthers(DropOthersRequest(keep="short"))


async def test_a_process_that_cannot_start_says_why(tmp_path, model):
    path = tmp_path / "gateway.json"
    path.write_text(json.dumps({"model": {"source": "builtin://nothing"}, "topology": "Fused"}))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "triptych_gateway", "--config", str(path),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert "no built-in model is named 'nothing'" in errors.decode()
