"""The life of a worker process: listen, load, serve, drain, end.

It listens before the model is loaded, so that probes and the operator see it start; it loads on a
thread of its own, so that they are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from triptych_contract.config import WorkerConfig
from triptych_contract.names import Tier

from triptych_worker.cores import Cores, alone, share
from triptych_worker.serving.admission import Admission
from triptych_worker.serving.boundary import Boundary
from triptych_worker.serving.composition import (
    Surroundings,
    compose,
    holding_bytes,
    landing_bytes,
)
from triptych_worker.serving.listener import Listener, join
from triptych_worker.serving.loading import Models, device_of, load_models
from triptych_worker.serving.metrics import Metrics, MetricsServer
from triptych_worker.serving.registrations import registrations
from triptych_worker.serving.signals import StopSignal
from triptych_worker.serving.worker import Worker
from triptych_worker.transfer.service import TransferService

_LOG: Final = logging.getLogger(__name__)

# For answers that are still on the way when the last work has ended.
_GRACE_SECONDS: Final = 1.0
_THREADS: Final = 8  # copies of tensors at a time; more wait

# Told the addresses once the worker serves.
Announce = Callable[[Mapping[str, str]], None]


class StoppedWhileLoadingError(Exception):
    """A stop was asked for before the model was loaded, which nothing can interrupt."""


async def run(tier: Tier, config: WorkerConfig, announce: Announce) -> None:
    """Serves ``tier`` until a signal asks it to stop, and drains.

    Raises:
        TriptychError: it cannot start; the message says why.
        StoppedWhileLoadingError: it was stopped before it served.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "work", alone))
    stop = StopSignal()
    stop.install()
    process = Process(tier, config)
    await process.listen()
    try:
        await process.load(stop)
        announce(process.addresses)
        await stop.wait()
        await process.drain()
    finally:
        await process.end()


class Process:
    """Everything a worker process consists of."""

    def __init__(self, tier: Tier, config: WorkerConfig) -> None:
        """Binds the ports.

        Raises:
            InvalidRequest: a port is taken, or the device or the transport cannot be had.
        """
        self._config = config
        self._instance = secrets.token_hex(8)
        self._cores = Cores(config.threads)
        alone()
        admission = Admission()
        self._metrics = Metrics()
        self._listener = Listener(
            config.listen, Boundary(admission, self._metrics, config.transfer.timeout_seconds)
        )
        self._transfer = TransferService(
            config.transfer,
            self._metrics,
            instance=self._instance,
            source=self._listener.address,
            holding_bytes=holding_bytes(tier, config),
            landing_bytes=landing_bytes(tier, config),
            keeps_embeddings=config.encode.cache_bytes > 0,
            pinned=device_of(config.model.device).type == "cuda",
        )
        self._worker = Worker(
            tier, self._instance, admission, self._transfer.transports, config.revisions
        )
        self._metrics.watch(
            self._worker.load,
            self._worker.capacity,
            lambda: [cache.stats() for cache in self._worker.caches],
            lambda: [held for cache in self._worker.caches for held in cache.holdings()],
        )
        self._metrics_server = MetricsServer(
            self._metrics.registry, config.listen.host, config.listen.metrics_port
        )

    @property
    def addresses(self) -> Mapping[str, str]:
        """Where peers and scrapers reach this process."""
        return {
            "grpc": self._listener.address,
            "metrics": join(self._listener.host, self._metrics_server.port),
            "tier": self._worker.tier,
        }

    async def listen(self) -> None:
        """Answers from now on: not with work, but that it starts."""
        self._health = await self._listener.start(
            registrations(self._config, self._worker, self._transfer)
        )
        await self._transfer.start()
        _LOG.info("%s listens on %s", self._worker.tier, self._listener.address)

    async def load(self, stop: StopSignal) -> None:
        """Loads the model and serves.

        Raises:
            TriptychError: the model cannot be served.
            StoppedWhileLoadingError: a stop was asked for meanwhile.
        """
        began = time.monotonic()
        models = await _loaded(self._worker.tier, self._config, self._cores.threads, stop)
        self._worker.serve(
            compose(
                models,
                Surroundings(
                    self._worker.tier,
                    self._config,
                    self._instance,
                    self._transfer,
                    self._metrics,
                    self._cores,
                ),
            )
        )
        self._health.set(serving=True)
        _LOG.info("%s serves after %.1f s", self._worker.tier, time.monotonic() - began)

    async def drain(self) -> None:
        """Takes nothing new, and waits for what runs and what is leased."""
        limit, began = self._config.drain_seconds, time.monotonic()
        self._worker.admission.drain()
        self._health.set(serving=False)
        _LOG.info("draining for at most %g s", limit)
        try:
            async with asyncio.timeout(limit):
                await self._worker.admission.idle()
        except TimeoutError:
            _LOG.warning("%d calls did not end in time", self._worker.admission.running)
        if not await self._transfer.wait_released(limit - (time.monotonic() - began)):
            _LOG.warning("%d leases did not end in time", self._worker.load().leases)

    async def end(self) -> None:
        """Cuts off what is left and gives everything back."""
        await self._listener.stop(_GRACE_SECONDS)
        self._worker.close()
        await self._transfer.stop()
        self._metrics_server.close()
        _LOG.info("%s has ended", self._worker.tier)


async def _loaded(tier: Tier, config: WorkerConfig, threads: int, stop: StopSignal) -> Models:
    """The models, unless ``stop`` comes first. A thread that asyncio does not wait for at its end,
    since a large model loads for longer than a pod is given to stop. With it end those that shared
    in its operations."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Models] = loop.create_future()

    def load() -> None:
        share(threads)
        try:
            models = load_models(tier, config)
        except Exception as error:  # noqa: BLE001 - raised where the future is awaited
            loop.call_soon_threadsafe(_fail, result, error)
        else:
            loop.call_soon_threadsafe(_succeed, result, models)

    threading.Thread(target=load, name="loading", daemon=True).start()
    stopped = asyncio.ensure_future(stop.wait())
    try:
        either: list[asyncio.Future[Any]] = [result, stopped]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise StoppedWhileLoadingError
        return result.result()
    finally:
        stopped.cancel()
        result.cancel()


def _fail(result: asyncio.Future[Models], error: Exception) -> None:
    if not result.done():
        result.set_exception(error)


def _succeed(result: asyncio.Future[Models], models: Models) -> None:
    if not result.done():
        result.set_result(models)
