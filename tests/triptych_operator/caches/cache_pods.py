"""Pods that hold caches, as real gRPC servers on loopback addresses of their own."""

# ruff: noqa: N802 - methods are named in the protobuf
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import grpc
from triptych_contract.fingerprints import EncoderIdentity, encoder_fingerprint
from triptych_contract.v1 import worker_pb2
from triptych_contract.v1.worker_pb2_grpc import (
    CacheAdminServicer,
    WorkerServicer,
    add_CacheAdminServicer_to_server,
    add_WorkerServicer_to_server,
)


@dataclass
class CachePod(WorkerServicer, CacheAdminServicer):
    """Holds ``held`` bytes by fingerprint, of which those in ``leased`` cannot be dropped yet, and
    those without one need not be."""

    address: str
    encoder: EncoderIdentity | None = None
    stated: str = ""  # fingerprint that it states, if that is not its encoder's
    held: dict[str, int] = field(default_factory=dict)
    leased: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    async def start(self, port: int) -> int:
        """Listens; the port that was taken."""
        self._server = grpc.aio.server()
        add_WorkerServicer_to_server(self, self._server)
        add_CacheAdminServicer_to_server(self, self._server)
        taken = self._server.add_insecure_port(f"{self.address}:{port}")
        await self._server.start()
        return taken

    async def stop(self) -> None:
        await self._server.stop(None)

    async def Describe(
        self, request: worker_pb2.DescribeRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.DescribeResponse:
        if self.encoder is None:
            return worker_pb2.DescribeResponse()
        return worker_pb2.DescribeResponse(
            encoder_identity=self.encoder.canonical(),
            fingerprint=self.stated or encoder_fingerprint(self.encoder),
        )

    async def DropOthers(
        self, request: worker_pb2.DropOthersRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.DropOthersResponse:
        self.asked.append(request.keep)
        stays = {"", request.keep, *self.leased}
        gone = [one for one in self.held if one not in stays]
        freed = sum(self.held.pop(one) for one in gone)
        return worker_pb2.DropOthersResponse(entries_dropped=len(gone), bytes_freed=freed)

    async def Holdings(
        self, request: worker_pb2.HoldingsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.HoldingsResponse:
        return worker_pb2.HoldingsResponse(
            holdings=[
                worker_pb2.Holding(cache="encoder", fingerprint=one, entries=1, bytes=size)
                for one, size in self.held.items()
            ]
        )
