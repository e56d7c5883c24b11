"""Puts the transfer parts of a process together."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

import grpc
from triptych_contract.config import Transfer
from triptych_contract.errors import InvalidRequest

from triptych_worker.domain import Observer
from triptych_worker.transfer.arena import Arena
from triptych_worker.transfer.grpc_stream import GrpcStream
from triptych_worker.transfer.landing import Landing
from triptych_worker.transfer.nixl_read import NixlAgent, NixlRead
from triptych_worker.transfer.peers import PeerChannels
from triptych_worker.transfer.releases import Releases
from triptych_worker.transfer.servicer import TransferServicer
from triptych_worker.transfer.source import PeerTensors
from triptych_worker.transfer.store import Origin, TensorStore
from triptych_worker.transfer.transport import Transport

_LOG: Final = logging.getLogger(__name__)
_SWEEP_SECONDS: Final = 0.5  # an overdue lease frees its memory this much later at most
_DRAIN_LOOK_SECONDS: Final = 0.05


class TransferService:
    """One process's end of all transfers: holds ``store``, reads others through ``source``, by
    connections of ``channels``.

    Make it, ``add_to`` a server, ``start`` it on the event loop it is used on, ``stop`` it at the
    end.

    Args:
        config: transport, times and the bound on what arrives.
        observer: told the bytes that move.
        instance: identity of this process; another after every start.
        source: host:port that peers reach the server at.
        holding_bytes: bound on what this process holds for peers.
        landing_bytes: overrides ``config.landing_bytes``; 0 for who receives nothing.
        keeps_embeddings: whether they stay as a cache when their leases have ended.
        pinned: page-lock both, for copies to and from a CUDA device.

    Raises:
        InvalidRequest: NIXL is asked for and cannot be had.
    """

    def __init__(
        self,
        config: Transfer,
        observer: Observer,
        *,
        instance: str,
        source: str,
        holding_bytes: int,
        landing_bytes: int | None = None,
        keeps_embeddings: bool = True,
        pinned: bool = False,
    ) -> None:
        holding = Arena(holding_bytes, pinned=pinned)
        landing = Arena(
            config.landing_bytes if landing_bytes is None else landing_bytes, pinned=pinned
        )
        self.channels = PeerChannels()
        agent = _agent(config, instance, holding, landing)
        self._ways: list[Transport] = [GrpcStream(self.channels)]
        if agent is not None:
            self._ways.insert(0, NixlRead(agent, self.channels))
        self._releases = Releases(self.channels)
        self.store = TensorStore(
            holding,
            Origin(source, instance, self.transports),
            lease_seconds=config.lease_seconds,
            keeps_embeddings=keeps_embeddings,
        )
        self.source = PeerTensors(
            self.store,
            Landing(landing),
            self._ways,
            self._releases,
            observer,
            instance=instance,
            timeout_seconds=config.timeout_seconds,
        )
        self._servicer = TransferServicer(
            self.store,
            agent,
            observer,
            # A peer gives its read up before the lease that covers it ends.
            read_seconds=config.lease_seconds + config.timeout_seconds,
        )
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def transports(self) -> tuple[str, ...]:
        """What this process serves and reads, the preferred one first."""
        return tuple(way.name for way in self._ways)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serves fetches, opens and releases."""
        self._servicer.add_to(server)

    async def start(self) -> None:
        """Begins to end leases whose time is over."""
        self._sweeper = asyncio.create_task(self._sweep())

    async def wait_released(self, seconds: float) -> bool:
        """Waits until nothing is leased any more; False when ``seconds`` were not enough."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.store.leases:  # noqa: ASYNC110 - leases end on any thread
                    await asyncio.sleep(_DRAIN_LOOK_SECONDS)
        return self.store.leases == 0

    async def stop(self) -> None:
        """Ends what is under way and closes connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self.source.close()
        await self._releases.close()
        self.channels.close()
        for way in self._ways:
            way.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            ended = self.store.expire()
            if ended:
                _LOG.info("%d leases ended by their time: nobody came for them", ended)


def _agent(config: Transfer, instance: str, holding: Arena, landing: Arena) -> NixlAgent | None:
    if config.transport == "grpc":
        return None
    try:
        return NixlAgent(instance, holding, landing)
    except InvalidRequest as error:
        if config.transport == "nixl":
            raise
        _LOG.info("tensors move by grpc: %s", error)
        return None
