"""Calls to the pods that hold caches: who they are, and what they are to drop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import grpc
from triptych_contract.errors import FingerprintMismatch, TriptychError, Unavailable
from triptych_contract.fingerprints import stated_fingerprint
from triptych_contract.names import Port
from triptych_contract.rpc import error_from_rpc
from triptych_contract.v1 import worker_pb2
from triptych_contract.v1.worker_pb2_grpc import CacheAdminStub, WorkerStub

from triptych_operator.caches.coherence import Holder, Outcome

CALL_SECONDS: Final = 5.0
_AT_A_TIME: Final = 16


class HolderCalls:
    """Speaks to pods at their gRPC port."""

    def __init__(self, port: int = Port.GRPC) -> None:
        self._port = port
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    async def fingerprint(self, holder: Holder) -> str:
        """Fingerprint of the encoder that a worker runs; empty if it runs none.

        Raises:
            Unavailable: it did not answer.
            FingerprintMismatch: it is not the fingerprint of the parts that the worker names.
        """
        async with self._slots, self._channel(holder) as channel:
            stub = WorkerStub(channel)
            try:
                answer = await stub.Describe(worker_pb2.DescribeRequest(), timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                raise Unavailable(f"{holder.pod}: {error_from_rpc(error).message}") from error
        if answer.fingerprint and stated_fingerprint(answer.encoder_identity) != answer.fingerprint:
            raise FingerprintMismatch(
                f"{holder.pod} states a fingerprint that the encoder it describes does not have: "
                "use an image of this version of Triptych"
            )
        return str(answer.fingerprint)

    async def flush(self, holders: Sequence[Holder], keep: str) -> list[Outcome]:
        """Has ``holders`` drop every fingerprint but ``keep``, and asks what they hold then."""
        return list(await asyncio.gather(*(self._flush(one, keep) for one in holders)))

    async def _flush(self, holder: Holder, keep: str) -> Outcome:
        async with self._slots, self._channel(holder) as channel:
            stub = CacheAdminStub(channel)
            try:
                dropped = await stub.DropOthers(
                    worker_pb2.DropOthersRequest(keep=keep), timeout=CALL_SECONDS
                )
                held = await stub.Holdings(worker_pb2.HoldingsRequest(), timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                return Outcome(holder, problem=_short(error_from_rpc(error)))
        # Without a fingerprint: keys and values of text, which no encoder makes stale.
        fingerprints = {one.fingerprint for one in held.holdings if one.entries} - {""}
        return Outcome(holder, freed_bytes=dropped.bytes_freed, held=frozenset(fingerprints))

    def _channel(self, holder: Holder) -> grpc.aio.Channel:
        host = f"[{holder.address}]" if ":" in holder.address else holder.address
        return grpc.aio.insecure_channel(f"{host}:{self._port}")


def _short(error: TriptychError) -> str:
    """One line without addresses and times that change from try to try."""
    return error.reason.value
