"""What is known of pods at the beginning, and what becomes of a channel that is needed no more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field

import grpc
import pytest
from scripted_worker import ScriptedWorker, World
from triptych_contract.config import Endpoints
from triptych_contract.fingerprints import EncoderIdentity
from triptych_contract.names import Tier, Topology
from triptych_gateway.tiers import pools as module
from triptych_gateway.tiers.calls import PodCalls
from triptych_gateway.tiers.fleet import Expected
from triptych_gateway.tiers.pools import Pools

pytestmark = pytest.mark.torch

EXPECTED = Expected(EncoderIdentity("s", "1", "", "1", {}))
SECONDS = 60.0


@dataclass
class Door:
    """The way to a pod, through which its connections can be counted."""

    port: int  # of the pod
    connections: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, connections: int) -> None:
        async with asyncio.timeout(SECONDS):
            while self.connections != connections:
                self.changed.clear()
                await self.changed.wait()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside, outside = await asyncio.open_connection("127.0.0.1", self.port)
        self._count(1)
        answers = asyncio.create_task(pump(inside, writer))
        await pump(reader, outside)
        self._count(-1)
        answers.cancel()

    def _count(self, more: int) -> None:
        self.connections += more
        self.changed.set()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes on what comes until there is no more."""
    with closing(writer):
        while some := await reader.read(65536):
            writer.write(some)


@asynccontextmanager
async def pod() -> AsyncIterator[tuple[str, Door]]:
    """A pod that offers no service yet: its address, and the door to it."""
    inside = grpc.aio.server()
    door = Door(inside.add_insecure_port("127.0.0.1:0"))
    await inside.start()
    outside = await asyncio.start_server(door.take, "127.0.0.1", 0)
    yield f"127.0.0.1:{outside.sockets[0].getsockname()[1]}", door
    outside.close()
    await inside.stop(None)


async def test_it_closes_once_nothing_runs_on_the_pod():
    async with pod() as (address, door):
        endpoints = {Tier.FUSED: Endpoints(addresses=(address,))}
        calls = PodCalls()
        async with Pools(calls, endpoints, Topology.FUSED, EXPECTED) as pools:
            with pools.working(address):
                await door.until(1)
                endpoints[Tier.FUSED] = Endpoints()
                await asyncio.sleep(5)  # more than two looks at DNS
                assert door.connections == 1
            await door.until(0)
        await calls.close()


@pytest.mark.parametrize(
    ("hung", "served"), [((), (Tier.PREFILL, Tier.DECODE)), ((Tier.DECODE,), (Tier.PREFILL,))]
)
async def test_pods_that_answer_are_known_before_the_first_request(
    hung: tuple[Tier, ...], served: tuple[Tier, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs is not waited for longer than an ask may take."""
    if not hung:  # a machine that others use may hold up those that answer
        monkeypatch.setattr(module, "_ASK_SECONDS", SECONDS)
    workers = [ScriptedWorker(tier, World()) for tier in (Tier.PREFILL, Tier.DECODE)]
    for worker in workers:
        await worker.start()
        if worker.tier in hung:
            worker.script["Describe"].append("hang")
    endpoints = {one.tier: Endpoints(addresses=(one.address,)) for one in workers}
    calls = PodCalls()
    async with Pools(calls, endpoints, Topology.FULL_SPLIT, EXPECTED) as pools:
        route = pools.route
        assert tuple(pod.tier for pod in (*route.prefill, *route.decode)) == served
    await calls.close()
    for worker in workers:
        await worker.stop()
