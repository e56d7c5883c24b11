"""A FullSplit service in processes of its own that changes its version as the operator rolls it.

Prefill and decode stay. A new encoder and a new gateway start beside the old ones, both gateways
answer for a while, the old ones drain and end, and then every cache holder is told to drop what
other encoders made, or is not: a missed flush must be as right.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import httpx2 as httpx
from coherence.steady_load import SteadyLoad
from coherence.versions import Version
from triptych_contract.config import Config, Endpoints, Listen
from triptych_contract.names import Tier
from triptych_contract.v1.worker_pb2 import DescribeRequest, DropOthersRequest, HoldingsRequest
from triptych_contract.v1.worker_pb2_grpc import CacheAdminStub, WorkerStub
from triptych_operator.local.process import LocalProcess
from triptych_operator.local.ready import Ready
from triptych_operator.runtime import gateway_config, worker_config

START_SECONDS = 200.0
STOP_SECONDS = 60.0
PORT = 21051  # below the ports that the kernel hands out
MOST_ENCODERS = 32


@dataclass(frozen=True)
class Serving:
    """What belongs to one version."""

    version: Version
    encoder: LocalProcess
    gateway: LocalProcess
    fingerprint: str
    encoder_address: str
    gateway_ready: Ready

    @property
    def url(self) -> str:
        return f"http://{self.gateway_ready.http}"


@dataclass
class RolledService:
    """The processes; ``now`` is the version that serves."""

    folder: Path
    environment: Mapping[str, str]
    stack: AsyncExitStack
    language: dict[Tier, str] = field(default_factory=dict)  # addresses
    versions: dict[str, Version] = field(default_factory=dict)  # by fingerprint
    now: Serving | None = None
    _names: itertools.count[int] = field(default_factory=itertools.count)

    async def start(self, version: Version) -> Serving:
        """The whole service, the first time."""
        tiers = (Tier.PREFILL, Tier.DECODE)
        readies = await asyncio.gather(*(self._language(tier, version) for tier in tiers))
        self.language = {tier: ready.grpc for tier, ready in zip(tiers, readies, strict=True)}
        self.now = await self._beside(version)
        return self.now

    async def switch(self, version: Version, load: SteadyLoad, *, flush: bool) -> None:
        """Rolls to ``version`` under ``load``."""
        old, new = self.now, await self._beside(version)
        assert old is not None
        load.urls.append(new.url)
        await load.wait_for(6)  # both versions answer
        load.urls.remove(old.url)
        for process in (old.gateway, old.encoder):
            assert await process.stop(STOP_SECONDS), f"{process.name}:\n{process.log_tail()}"
        self.now = new
        if flush:
            await self._flush(new)
        await load.wait_for(len(load.questions))

    async def _beside(self, version: Version) -> Serving:
        """A new encoder and gateway of ``version``, beside what serves."""
        index = next(self._names)
        listen = Listen(host=_host(index), grpc_port=PORT, metrics_port=0, advertise=_host(index))
        config = worker_config(version.service(), Tier.ENCODER, listen=listen, threads=1)
        encoder, gateway = (
            await self._started(f"encoder-{index}", Tier.ENCODER, config),
            await self._started(f"gateway-{index}", Tier.GATEWAY, self._gateway(version)),
        )
        told = (await encoder.ready(START_SECONDS)).grpc
        async with grpc.aio.insecure_channel(told) as channel:
            fingerprint = (await WorkerStub(channel).Describe(DescribeRequest())).fingerprint
        self.versions[fingerprint] = version
        ready = await gateway.ready(START_SECONDS)
        await _until_ready(f"http://{ready.http}")
        return Serving(version, encoder, gateway, fingerprint, told, ready)

    def _gateway(self, version: Version) -> Config:
        """Knows every encoder there will be, as by DNS, and uses those of its own version."""
        encoders = tuple(f"{_host(index)}:{PORT}" for index in range(MOST_ENCODERS))
        endpoints = {tier: Endpoints(addresses=(one,)) for tier, one in self.language.items()}
        return gateway_config(
            version.service(),
            {Tier.ENCODER: Endpoints(addresses=encoders), **endpoints},
            listen=Listen(host="127.0.0.1", http_port=0, grpc_port=0, metrics_port=0),
        )

    async def _language(self, tier: Tier, version: Version) -> Ready:
        listen = Listen(host="127.0.0.1", grpc_port=0, metrics_port=0)
        config = worker_config(version.service(), tier, listen=listen, threads=1)
        process = await self._started(str(tier), tier, config)
        return await process.ready(START_SECONDS)

    async def _started(self, name: str, tier: Tier, config: Config) -> LocalProcess:
        path = self.folder / f"{name}.json"
        path.write_text(config.model_dump_json())
        module = ["triptych_gateway"] if tier is Tier.GATEWAY else ["triptych_worker", str(tier)]
        argv = [sys.executable, "-m", *module, "--config", str(path)]
        process = LocalProcess(name, argv, self.environment, self.folder / f"{name}.log")
        self.stack.push_async_callback(process.kill)
        await process.start()
        return process

    async def _flush(self, serving: Serving) -> None:
        """What the operator does once a version is in service, and verifies."""
        prefill = self.language[Tier.PREFILL]
        for holder in (serving.gateway_ready.grpc, serving.encoder_address, prefill):
            async with grpc.aio.insecure_channel(holder) as channel:
                admin = CacheAdminStub(channel)
                await admin.DropOthers(DropOthersRequest(keep=serving.fingerprint))
                held = (await admin.Holdings(HoldingsRequest())).holdings
            assert {one.fingerprint for one in held if one.entries} <= {serving.fingerprint}


@asynccontextmanager
async def rolled_service(
    folder: Path, sources: tuple[Path, ...] = ()
) -> AsyncIterator[RolledService]:
    """A service that runs within the block, from ``sources`` where they have what it imports."""
    environment = {"HF_HUB_OFFLINE": "1"}
    if sources:
        environment["PYTHONPATH"] = os.pathsep.join(map(str, sources))
    async with AsyncExitStack() as stack:
        yield RolledService(folder, environment, stack)


def _host(index: int) -> str:
    """A loopback address that no other process on this machine uses."""
    return f"127.44.{os.getpid() % 250 + 1}.{index + 1}"


async def _until_ready(url: str) -> None:
    async with (
        asyncio.timeout(START_SECONDS),
        httpx.AsyncClient(timeout=START_SECONDS) as client,
    ):
        while (  # noqa: ASYNC110 - another process, which has no event for it
            await client.get(f"{url}/readyz")
        ).status_code != httpx.codes.OK:
            await asyncio.sleep(0.05)
