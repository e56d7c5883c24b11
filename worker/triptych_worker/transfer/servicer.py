"""The holding side: answers Fetch, Open and Release."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from triptych_contract.errors import InvalidRequest, TriptychError
from triptych_contract.names import TRANSFER_FETCH, TRANSFER_SERVICE, Metric
from triptych_contract.rpc import abort_with
from triptych_contract.v1 import transfer_pb2_grpc
from triptych_contract.v1.transfer_pb2 import (
    FetchRequest,
    OpenRequest,
    OpenResponse,
    ReleaseRequest,
    ReleaseResponse,
)

from triptych_worker.domain import Observer
from triptych_worker.transfer.grpc_stream import GrpcStream, chunks
from triptych_worker.transfer.nixl_read import NixlAgent, NixlRead
from triptych_worker.transfer.store import Held, TensorStore
from triptych_worker.transfer.transport import header_of

_Context = grpc.aio.ServicerContext[Any, Any]
_FETCH_METHOD: Final = TRANSFER_FETCH.rpartition("/")[2]


class TransferServicer(transfer_pb2_grpc.TransferServicer):
    """Lets peers read what ``store`` leases them.

    ``read_seconds`` is how long a peer that reads memory itself is given for it.
    """

    def __init__(
        self,
        store: TensorStore,
        agent: NixlAgent | None,
        observer: Observer,
        *,
        read_seconds: float,
    ) -> None:
        self._store = store
        self._agent = agent
        self._observer = observer
        self._read_seconds = read_seconds

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serves both services."""
        transfer_pb2_grpc.add_TransferServicer_to_server(self, server)
        # Without serializers, messages are the bytes themselves.
        method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_stream_rpc_method_handler(
            self.fetch
        )
        handlers = grpc.method_handlers_generic_handler(TRANSFER_SERVICE, {_FETCH_METHOD: method})
        server.add_generic_rpc_handlers((handlers,))

    async def fetch(self, request: bytes, context: _Context) -> AsyncIterator[bytes]:
        """One header, then the bytes in chunks."""
        async with _errors(context):
            fetch = _parsed(request)
            with self._store.reading(fetch.lease_id, fetch.key, fetch.fingerprint) as held:
                yield header_of(held).SerializeToString()
                for chunk in self._chunks(held):
                    yield chunk
                self._count(held, GrpcStream.name)

    async def Open(  # noqa: N802 - the name of the rpc
        self, request: OpenRequest, context: _Context
    ) -> OpenResponse:
        """Where the tensor lies, for a peer that reads this process's memory."""
        async with _errors(context):
            if self._agent is None or request.transport != NixlRead.name:
                raise InvalidRequest(f"transport {request.transport!r} is not served here")
            fetch = request.fetch
            held = self._store.extend(
                fetch.lease_id, fetch.key, fetch.fingerprint, self._read_seconds
            )
            self._count(held, NixlRead.name)
            self._agent.announce(fetch.lease_id)
            return OpenResponse(
                header=header_of(held),
                agent=self._agent.metadata,
                agent_name=self._agent.name,
                address=self._store.arena.address + held.start,
                length=held.size_bytes,
                device=0,
                memory="DRAM",
            )

    async def Release(  # noqa: N802 - the name of the rpc
        self, request: ReleaseRequest, context: _Context
    ) -> ReleaseResponse:
        """Ends leases; unknown ones are passed over."""
        if self._agent is not None:
            self._agent.done(request.lease_ids)
        return ReleaseResponse(released=self._store.release(request.lease_ids))

    def _chunks(self, held: Held) -> Iterator[bytes]:
        return chunks(self._store.arena.view(held.start, held.size_bytes))

    def _count(self, held: Held, transport: str) -> None:
        self._observer.add(
            Metric.TRANSFER_BYTES,
            held.size_bytes,
            kind=held.kind,
            transport=transport,
            direction="sent",
        )


@asynccontextmanager
async def _errors(context: _Context) -> AsyncIterator[None]:
    try:
        yield
    except TriptychError as error:
        await abort_with(context, error)


def _parsed(request: bytes) -> FetchRequest:
    try:
        return FetchRequest.FromString(request)
    except DecodeError as error:
        raise InvalidRequest("the request is not a FetchRequest") from error
