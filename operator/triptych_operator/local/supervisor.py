"""Runs a service's processes: workers, then the gateway; restarts what dies; drains in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from triptych_contract.config import Config, Endpoints, Listen
from triptych_contract.errors import TriptychError
from triptych_contract.names import Tier

from triptych_operator.api.scalars import parse_seconds
from triptych_operator.api.service import MultimodalService
from triptych_operator.local.events import Event, Happening, Report
from triptych_operator.local.plan import (
    DRAIN_ORDER,
    NICENESS,
    PACE_SECONDS,
    LocalPlan,
    PlannedProcess,
    deaths_in_a_row,
    restart_delay,
)
from triptych_operator.local.process import LocalProcess, describe
from triptych_operator.local.ready import Ready, port_of
from triptych_operator.runtime import gateway_config, worker_config


class Program(Protocol):
    """How a planned process is called."""

    def __call__(self, process: PlannedProcess, config: Path) -> list[str]:
        """Argument list of ``process`` with the configuration file ``config``."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a local service lives. ``port`` 0 takes a free one for the gateway."""

    configs: Path
    logs: Path
    host: str = "127.0.0.1"
    port: int = 8000
    start_seconds: float = 180.0  # until each process serves
    grace_seconds: float = 5.0  # beyond a tier's own drain timeout, before it is killed


@dataclass(slots=True)
class _Run:
    """One planned process through its restarts."""

    planned: PlannedProcess
    child: LocalProcess
    started: float
    ready: Ready = field(default_factory=Ready)
    deaths: int = 0


class Supervisor:
    """Owns the processes of one service from ``start`` to ``drain``."""

    def __init__(
        self,
        service: MultimodalService,
        plan: LocalPlan,
        place: Place,
        program: Program,
        report: Report,
    ) -> None:
        self._service = service
        self._plan = plan
        self._place = place
        self._program = program
        self._report = report
        self._runs: dict[str, _Run] = {}

    async def start(self) -> str:
        """Starts everything and returns the gateway's address (host:port).

        Raises:
            TriptychError: a process ended or did not get ready; the others are left to ``drain``.
        """
        await _all_or_first_error(self._launch(planned) for planned in self._plan.workers)
        await self._launch(self._plan.gateway)
        return self._runs[self._plan.gateway.name].ready.http

    async def watch(self) -> None:
        """Restarts processes that end, each after a growing delay, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name in self._runs:
                group.create_task(self._keep(name))

    async def drain(self) -> None:
        """Stops tier after tier, whoever takes requests in first."""
        for tiers in DRAIN_ORDER:
            runs = [run for run in self._runs.values() if run.planned.tier in tiers]
            await asyncio.gather(*(self._stop(run) for run in runs))

    async def kill(self) -> None:
        """Ends every process now."""
        await asyncio.gather(*(run.child.kill() for run in self._runs.values()))

    async def _launch(self, planned: PlannedProcess) -> None:
        """Starts ``planned`` and waits until it serves. After a restart it has its old ports."""
        run = self._runs.get(planned.name)
        ready = run.ready if run else Ready()
        path = self._place.configs / f"{planned.name}.json"
        text = self._config(planned, ready).model_dump_json(indent=2)
        await asyncio.to_thread(path.write_text, text, encoding="utf-8")
        child = LocalProcess(
            planned.name,
            self._program(planned, path),
            {"OMP_NUM_THREADS": str(self._plan.threads), "PYTHONUNBUFFERED": "1"},
            self._place.logs / f"{planned.name}.log",
            NICENESS.get(planned.tier, 0),
        )
        started = time.monotonic()
        if run is None:
            run = self._runs[planned.name] = _Run(planned, child, started)
        run.child, run.started = child, started
        self._report(Event(planned.name, Happening.STARTING))
        await child.start()
        run.ready = await child.ready(self._place.start_seconds)
        took = time.monotonic() - started
        address = run.ready.http or run.ready.grpc
        self._report(Event(planned.name, Happening.READY, took, address))

    async def _keep(self, name: str) -> None:
        """Restarts one process whenever it ends."""
        run = self._runs[name]
        while True:
            status = await run.child.wait()
            run.deaths = deaths_in_a_row(run.deaths, time.monotonic() - run.started)
            delay = restart_delay(run.deaths)
            tail = await asyncio.to_thread(run.child.log_tail, 5)
            detail = f"{describe(status)}\n{tail}"
            self._report(Event(name, Happening.ENDED, delay, detail))
            await run.child.kill()  # what it left behind would hold its ports
            await asyncio.sleep(delay)
            try:
                await self._launch(run.planned)
            except TriptychError:
                await run.child.kill()  # counted and reported as its end above

    async def _stop(self, run: _Run) -> None:
        if not run.child.running:
            return
        self._report(Event(run.planned.name, Happening.DRAINING))
        limit = parse_seconds(self._service.spec.tier(run.planned.tier).drain.timeout)
        began = time.monotonic()
        by_itself = await run.child.stop(limit + self._place.grace_seconds)
        happening = Happening.STOPPED if by_itself else Happening.KILLED
        self._report(Event(run.planned.name, happening, time.monotonic() - began))

    def _config(self, planned: PlannedProcess, ready: Ready) -> Config:
        if planned.tier is Tier.GATEWAY:
            listen = Listen(
                host=self._place.host,
                http_port=port_of(ready.http) or self._place.port,
                grpc_port=port_of(ready.grpc),
                metrics_port=port_of(ready.metrics),
            )
            return gateway_config(self._service, self._endpoints(), listen=listen)
        listen = Listen(
            host="127.0.0.1",
            advertise="127.0.0.1",
            grpc_port=port_of(ready.grpc),
            metrics_port=port_of(ready.metrics),
            http_port=0,
        )
        threads = self._plan.threads
        config = worker_config(self._service, planned.tier, listen=listen, threads=threads)
        return config.model_copy(update={"pace_seconds": PACE_SECONDS.get(planned.tier, 0.0)})

    def _endpoints(self) -> dict[Tier, Endpoints]:
        addresses: dict[Tier, list[str]] = {}
        for run in self._runs.values():
            if run.ready.grpc and run.planned.tier is not Tier.GATEWAY:
                addresses.setdefault(run.planned.tier, []).append(run.ready.grpc)
        return {tier: Endpoints(addresses=tuple(given)) for tier, given in addresses.items()}


async def _all_or_first_error(steps: Iterable[Awaitable[None]]) -> None:
    """Waits for all; the first error cancels the rest and is raised as it is."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
