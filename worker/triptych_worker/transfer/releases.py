"""Gives leases back to their holders, off everybody's critical path.

Best effort: a lease that is not given back ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

import grpc
from triptych_contract.errors import TriptychError
from triptych_contract.rpc import Failure, error_from_rpc
from triptych_contract.v1.transfer_pb2 import ReleaseRequest
from triptych_contract.v1.transfer_pb2_grpc import TransferStub

from triptych_worker.domain import Handle
from triptych_worker.transfer.peers import PeerChannels

_LOG: Final = logging.getLogger(__name__)
_CALL_SECONDS: Final = 2.0
_MAX_PENDING: Final = 10_000  # per holder; more expire by themselves
_THREADS: Final = 4  # a vanished holder keeps one waiting


class Releases:
    """One call at a time per holder, with whatever has come together meanwhile. On one loop."""

    def __init__(self, channels: PeerChannels) -> None:
        self._channels = channels
        self._pending: dict[str, list[str]] = {}  # lease ids by source
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "transfer-release")

    def add(self, handle: Handle) -> None:
        """Gives the lease back soon."""
        waiting = self._pending.setdefault(handle.source, [])
        if len(waiting) < _MAX_PENDING:
            waiting.append(handle.lease_id)
        if handle.source not in self._senders:
            sender = asyncio.get_running_loop().create_task(self._send(handle.source))
            self._senders[handle.source] = sender

    async def flush(self, sources: Iterable[str]) -> None:
        """Waits until what was added for ``sources`` was sent, or could not be."""
        senders = [self._senders[source] for source in set(sources) if source in self._senders]
        if senders:
            await asyncio.wait(senders, timeout=2 * _CALL_SECONDS)

    async def close(self) -> None:
        """Sends what is pending, within the time of a call or two, and ends."""
        await self.flush(list(self._senders))
        for sender in self._senders.values():
            sender.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _send(self, source: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            while lease_ids := self._pending.pop(source, None):
                await loop.run_in_executor(self._threads, self._call, source, lease_ids)
        finally:
            del self._senders[source]

    def _call(self, source: str, lease_ids: list[str]) -> None:
        try:
            with self._channels.channel(source) as channel:
                request = ReleaseRequest(lease_ids=lease_ids)
                TransferStub(channel).Release(request, timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            _left_to_expire(source, lease_ids, error_from_rpc(cast(Failure, error)))
        except (TriptychError, ValueError) as error:  # ValueError: the channel was closed
            _left_to_expire(source, lease_ids, error)


def _left_to_expire(source: str, lease_ids: list[str], error: Exception) -> None:
    _LOG.info("%d leases at %s are left to expire: %s", len(lease_ids), source, error)
