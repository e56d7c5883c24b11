"""Embeddings that another encoder has made already: pulled, where encoding again takes longer.

Pulling moves kilobytes, encoding is a pass through a model (docs/benchmarks.md). A new encoder gets
its part of the pictures from those that had them before, and one that takes work off a busy encoder
gets its results. Whatever goes wrong is a miss: the picture is then encoded here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final, Protocol

from triptych_contract.errors import TriptychError

from triptych_worker.domain import Handle, HandleKind, TensorHolder, TensorSource

_log = logging.getLogger(__name__)

# Long for a pull, short beside what a request may take: a peer that is slower is not waited for.
_SECONDS: Final = 1.0
_AT_A_TIME: Final = 8


class PeerLeases(Protocol):
    """Asks other encoders for what they hold."""

    async def lease(self, peer: str, key: bytes, fingerprint: str) -> Handle | None:
        """A lease on the embedding of ``key`` at ``peer`` (host:port), None if it has none.

        Raises:
            TriptychError: it did not answer.
        """
        ...


class PeerEmbeddings:
    """Takes embeddings over into ``holder``. Used on one event loop.

    Only those of ``fingerprint`` and with rows of ``width``; each once at a time, however many ask.
    """

    def __init__(
        self,
        leases: PeerLeases,
        source: TensorSource,
        holder: TensorHolder,
        *,
        fingerprint: str,
        width: int,
    ) -> None:
        self._leases = leases
        self._source = source
        self._holder = holder
        self._fingerprint = fingerprint
        self._width = width
        self._flights: dict[bytes, asyncio.Task[bool]] = {}

    async def take_over(self, key: bytes, peer: str) -> bool:
        """Whether the holder has the embedding of ``key`` now, from ``peer``."""
        flight = self._flights.get(key)
        if flight is None:
            if len(self._flights) >= _AT_A_TIME:
                return False
            flight = asyncio.create_task(self._pulled(key, peer))
            self._flights[key] = flight
            flight.add_done_callback(lambda _: self._flights.pop(key))
        return await asyncio.shield(flight)

    async def _pulled(self, key: bytes, peer: str) -> bool:
        try:
            async with asyncio.timeout(_SECONDS):
                handle = await self._leases.lease(peer, key, self._fingerprint)
                return handle is not None and await self._kept(key, handle)
        except (TriptychError, TimeoutError) as error:
            _log.info("nothing was taken over from %s: %s", peer, error or "it is too slow")
            return False

    async def _kept(self, key: bytes, handle: Handle) -> bool:
        if not self._is_wanted(key, handle):
            await self._source.release([handle])
            return False
        began = time.perf_counter()
        async with self._source.borrow(handle) as rows:
            own = await asyncio.to_thread(
                self._holder.publish,
                HandleKind.EMBEDDING,
                key,
                self._fingerprint,
                rows,
                seconds=time.perf_counter() - began,
            )
        self._holder.release([own.lease_id])
        return True

    def _is_wanted(self, key: bytes, handle: Handle) -> bool:
        of = (handle.kind, handle.key, handle.fingerprint, handle.shape[1:])
        return of == (HandleKind.EMBEDDING, key, self._fingerprint, (self._width,))
