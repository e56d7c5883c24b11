"""A gateway process: its parts put together, served, and drained."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import uvicorn
from prometheus_client import start_http_server
from starlette.applications import Starlette
from triptych_contract.config import Endpoints, GatewayConfig
from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Tier
from triptych_models.sources import model_folder

from triptych_gateway.admin import AdminServer
from triptych_gateway.api.app import Pages, Readiness, build_app
from triptych_gateway.api.chat import ChatCompletions
from triptych_gateway.api.draining import ClosingWhileDraining
from triptych_gateway.identity import expected_workers
from triptych_gateway.media.addresses import parse_networks
from triptych_gateway.media.budget import ByteBudget
from triptych_gateway.media.fetch import Fetcher
from triptych_gateway.media.known import KnownMedia
from triptych_gateway.media.loader import MediaLoader
from triptych_gateway.media.pool import DecodePool
from triptych_gateway.metrics import GatewayMetrics
from triptych_gateway.pipeline.answering import Answering
from triptych_gateway.pipeline.embeddings import Embeddings
from triptych_gateway.pipeline.encoder_loss import EncoderLoss
from triptych_gateway.pipeline.generation import Generation
from triptych_gateway.pipeline.leases import Releases
from triptych_gateway.pipeline.pictures import Pictures
from triptych_gateway.processors.cache import ProcessorCache
from triptych_gateway.processors.load import ModelProcessor, load_processor
from triptych_gateway.tiers.calls import PodCalls
from triptych_gateway.tiers.pools import Pools

_LOG: Final = logging.getLogger(__name__)
_THREADS: Final = 2  # image processor and tokenizer; both release the GIL for most of their time
_BACKLOG: Final = 1024
_LAST_SECONDS: Final = 2  # for connections to close once nothing runs
# For clients that go on on the same connection to be told to part (api.draining).
_PARTING_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Gateway:
    """The parts of a running gateway that its server needs."""

    app: Starlette
    chat: ChatCompletions
    metrics: GatewayMetrics
    cache: ProcessorCache
    readiness: Readiness


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a gateway listens."""

    http: str
    metrics: str
    grpc: str


@asynccontextmanager
async def running_gateway(
    config: GatewayConfig, model: ModelProcessor, fetcher: Fetcher
) -> AsyncIterator[Gateway]:
    """All parts, connected and started; stopped at the end of the ``async with``."""
    cache = ProcessorCache(config.processor_cache_bytes)
    metrics = GatewayMetrics(cache)
    readiness = Readiness(encoder_rests=config.encoder_rests)
    calls = PodCalls()
    releases = Releases(calls)
    expected = expected_workers(config.model, model.parameters, config.revisions)
    decoding = DecodePool(
        processes=config.media.decode_processes,
        seconds=config.media.decode_seconds,
        max_pixels=config.media.max_pixels,
    )
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="processor")
    async with decoding, Pools(calls, _endpoints(config), config.topology, expected) as pools:
        loader = MediaLoader(
            config.media, fetcher, decoding, ByteBudget(config.media.inflight_bytes)
        )
        pictures = Pictures(
            loader=loader,
            processor=model.pictures,
            cache=cache,
            known=KnownMedia(config.media.uuid_bytes),
            threads=threads,
            max_items=config.media.max_items,
        )
        encoder_loss = EncoderLoss(
            Embeddings(calls, pools, pictures),
            pools,
            config.topology,
            policy=config.on_encoder_loss,
            queue_seconds=config.queue_seconds,
            missing=metrics.without_encoder,
        )
        generation = Generation(calls, pools, encoder_loss, releases, config.topology)
        answering = Answering(
            pools=pools,
            pictures=pictures,
            prompts=model.prompts,
            encoder_loss=encoder_loss,
            generation=generation,
            threads=threads,
            topology=config.topology,
        )
        bodies = ByteBudget(max(config.media.inflight_bytes, config.max_body_bytes))
        chat = ChatCompletions(config, answering, metrics, bodies)
        pages = Pages(config.model.served_name, config.topology, pools, metrics, readiness)
        try:
            yield Gateway(build_app(chat, pages), chat, metrics, cache, readiness)
        finally:
            await releases.finish()
            await calls.close()
            threads.shutdown(wait=False, cancel_futures=True)


def _endpoints(config: GatewayConfig) -> dict[Tier, Endpoints]:
    """Where the workers of each tier are."""
    return {
        Tier.ENCODER: config.encoder,
        Tier.PREFILL: config.prefill,
        Tier.DECODE: config.decode,
        Tier.FUSED: config.fused,
    }


def fetcher_of(config: GatewayConfig) -> Fetcher:
    """The fetcher that the configuration asks for.

    Raises:
        InvalidRequest: an allowed network is not in CIDR notation.
    """
    try:
        networks = parse_networks(config.media.allow_networks)
    except ValueError as error:
        raise InvalidRequest(f"media.allow_networks: {error}") from error
    return Fetcher(
        max_bytes=config.media.max_bytes, seconds=config.media.fetch_seconds, networks=networks
    )


async def serve(config: GatewayConfig, announce: Callable[[Addresses], None]) -> None:
    """Runs a gateway until SIGTERM or SIGINT, then drains it.

    Raises:
        InvalidModel, InvalidRequest, Unavailable: it cannot start; the message says why.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    fetcher = fetcher_of(config)
    listening = _bound(config.listen.host, config.listen.http_port)
    folder = await asyncio.to_thread(model_folder, config.model)
    model = await asyncio.to_thread(load_processor, folder, config.model)
    async with running_gateway(config, model, fetcher) as gateway:
        await _serve_until(stop, config, gateway, listening, announce)


async def _serve_until(
    stop: asyncio.Event,
    config: GatewayConfig,
    gateway: Gateway,
    listening: socket.socket,
    announce: Callable[[Addresses], None],
) -> None:
    host = config.listen.host
    admin = AdminServer(gateway.cache, uuid.uuid4().hex)
    grpc_port = await admin.start(host, config.listen.grpc_port)
    exposition, _ = start_http_server(
        config.listen.metrics_port, host, registry=gateway.metrics.registry
    )
    server = _Server(
        uvicorn.Config(
            ClosingWhileDraining(gateway.app, lambda: gateway.readiness.draining),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=_LAST_SECONDS,
        )
    )
    listening.listen(_BACKLOG)  # whoever reads the announcement may connect at once
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    announce(
        Addresses(
            http=_joined(host, listening.getsockname()[1]),
            metrics=_joined(host, exposition.server_port),
            grpc=_joined(host, grpc_port),
        )
    )
    await asyncio.wait(
        (serving, asyncio.create_task(stop.wait())), return_when=asyncio.FIRST_COMPLETED
    )
    await _drained(config, gateway, admin)
    server.should_exit = True
    await serving
    await admin.stop()
    await asyncio.to_thread(exposition.shutdown)


async def _drained(config: GatewayConfig, gateway: Gateway, admin: AdminServer) -> None:
    """Asks for no new requests, still answers those that come, and waits for all to end."""
    _LOG.info("draining for at most %g seconds", config.drain_seconds)
    gateway.readiness.draining = True
    await admin.drain()
    try:
        async with asyncio.timeout(config.drain_seconds):
            await asyncio.sleep(_PARTING_SECONDS)
            await gateway.chat.idle()
    except TimeoutError:
        _LOG.warning("requests are still running after %g seconds", config.drain_seconds)


class _Server(uvicorn.Server):
    """Uvicorn without its signal handling: this process drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals to ``serve``."""
        yield


def _bound(host: str, port: int) -> socket.socket:
    """A socket that is bound before the model loads, so that a taken port is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise InvalidRequest(
            f"cannot listen on {_joined(host, port)}: {error.strerror}; set listen.http_port"
        ) from error
    return listening


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
