"""The receiving side: gets the tensor behind a handle, wherever it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import torch
from triptych_contract.errors import (
    DeadlineExceeded,
    InvalidRequest,
    LeaseExpired,
    TransferCorrupted,
    Unavailable,
)
from triptych_contract.names import Metric

from triptych_worker.domain import Handle, HandleKind, Observer
from triptych_worker.transfer.landing import Landing
from triptych_worker.transfer.layout import size_of
from triptych_worker.transfer.releases import Releases
from triptych_worker.transfer.store import TensorStore
from triptych_worker.transfer.transport import Limit, Place, Transport

_LOG: Final = logging.getLogger(__name__)
_THREADS: Final = 8  # pulls at a time; more wait within their own deadline
# After these, another way to the same bytes may work.
_WORTH_ANOTHER_WAY: Final = (Unavailable, DeadlineExceeded, TransferCorrupted, InvalidRequest)


@dataclass(slots=True, eq=False)
class _Flight:
    """A tensor under way or landed, and how many borrow it."""

    name: tuple[str, ...] | tuple[str, bytes, str]
    task: asyncio.Task[int]  # start in the landing arena
    borrowers: int = 0


class PeerTensors:
    """Implements ``domain.TensorSource``. Used on one event loop.

    This process's own handles lead to ``store``; others' tensors arrive in ``landing`` by the first
    of ``transports`` that works, and the bytes are told to ``observer``. ``instance`` is this
    process's identity. No borrow takes longer than ``timeout_seconds``.
    """

    def __init__(
        self,
        store: TensorStore,
        landing: Landing,
        transports: Sequence[Transport],
        releases: Releases,
        observer: Observer,
        *,
        instance: str,
        timeout_seconds: float,
    ) -> None:
        self._store = store
        self.landing = landing
        self._transports = transports
        self._releases = releases
        self._observer = observer
        self._instance = instance
        self._timeout = timeout_seconds
        self._flights: dict[object, _Flight] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "transfer-pull")

    @asynccontextmanager
    async def borrow(self, handle: Handle) -> AsyncIterator[torch.Tensor]:
        """See ``domain.TensorSource.borrow``."""
        if handle.instance == self._instance:
            try:
                with self._store.reading(handle.lease_id, handle.key, handle.fingerprint) as held:
                    yield self._store.arena.tensor(held.start, held.shape, held.dtype)
            finally:
                self._store.release([handle.lease_id])
            return
        if size_of(handle.shape, handle.dtype) != handle.size_bytes:
            raise InvalidRequest(
                f"{handle.size_bytes} bytes are no {handle.dtype} tensor of shape {handle.shape}"
            )
        flight = await self._board(handle)
        try:
            self._releases.add(handle)
            yield self.landing.arena.tensor(flight.task.result(), handle.shape, handle.dtype)
        finally:
            self._leave(flight)

    async def release(self, handles: Sequence[Handle]) -> None:
        """See ``domain.TensorSource.release``."""
        own = [handle for handle in handles if handle.instance == self._instance]
        self._store.release([handle.lease_id for handle in own])
        others = [handle for handle in handles if handle.instance != self._instance]
        for handle in others:
            self._releases.add(handle)
        await self._releases.flush(handle.source for handle in others)

    async def close(self) -> None:
        """Cancels what is under way."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _board(self, handle: Handle) -> _Flight:
        """The landed flight of ``handle``'s tensor, which the caller must leave."""
        while True:
            name = _flight_name(handle)
            flight = self._flights.get(name)
            joined = flight is not None
            if flight is None:
                flight = _Flight(name, asyncio.create_task(self._pull(handle)))
                self._flights[name] = flight
            flight.borrowers += 1
            try:
                await asyncio.shield(flight.task)
            except LeaseExpired:
                self._leave(flight)
                if not joined:
                    raise  # ours was over; who joined goes on with a lease of its own
            except BaseException:
                self._leave(flight)
                raise
            else:
                return flight

    def _leave(self, flight: _Flight) -> None:
        flight.borrowers -= 1
        failed = flight.task.done() and not _landed(flight.task)
        if (failed or flight.borrowers == 0) and self._flights.get(flight.name) is flight:
            del self._flights[flight.name]
        if flight.borrowers:
            return
        if not flight.task.done():
            flight.task.cancel()
        elif not failed:
            self.landing.free(flight.task.result())

    async def _pull(self, handle: Handle) -> int:
        """Start of the tensor in the landing arena, by the best transport that both ends have."""
        ways = [each for each in self._transports if each.name in handle.transports]
        if not ways:
            raise Unavailable(
                f"{handle.source} offers {', '.join(handle.transports) or 'no transport'}: set "
                "transfer.transport alike on all tiers"
            )
        seconds = self._timeout / len(ways)
        for way in ways[:-1]:
            try:
                return await self._attempt(way, handle, seconds)
            except _WORTH_ANOTHER_WAY as error:
                _LOG.warning("transfer by %s failed, trying another way: %s", way.name, error)
        return await self._attempt(ways[-1], handle, seconds)

    async def _attempt(self, way: Transport, handle: Handle, seconds: float) -> int:
        try:
            async with asyncio.timeout(seconds):
                start = await self.landing.reserve(handle.size_bytes)
                limit = Limit(seconds)
                await self._ran(way, handle, start, limit)
                self._count(handle, way)
                return start
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"{handle.size_bytes} bytes from {handle.source} by {way.name} took longer than "
                f"{seconds:g} s"
            ) from error

    async def _ran(self, way: Transport, handle: Handle, start: int, limit: Limit) -> None:
        """Runs one pull on a thread. However it ends, its range is freed only when the thread has
        let go of it."""
        arena = self.landing.arena
        place = Place(arena.view(start, handle.size_bytes), arena.address + start)
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(self._threads, way.pull, handle, place, limit)
        try:
            await asyncio.shield(job)
        except BaseException:
            limit.cancel()
            job.add_done_callback(lambda done: self._abandoned(done, start))
            raise

    def _abandoned(self, done: asyncio.Future[None], start: int) -> None:
        self.landing.free(start)
        if not done.cancelled() and (error := done.exception()) is not None:
            _LOG.debug("an abandoned pull ended: %s", error)

    def _count(self, handle: Handle, way: Transport) -> None:
        self._observer.add(
            Metric.TRANSFER_BYTES,
            handle.size_bytes,
            kind=handle.kind,
            transport=way.name,
            direction="received",
        )


def _flight_name(handle: Handle) -> tuple[str, ...] | tuple[str, bytes, str]:
    """Equal for handles that one fetch serves."""
    if handle.kind is HandleKind.EMBEDDING:
        return (handle.instance, handle.key, handle.fingerprint)
    return (handle.instance, handle.lease_id)


def _landed(task: asyncio.Task[int]) -> bool:
    return not task.cancelled() and task.exception() is None
