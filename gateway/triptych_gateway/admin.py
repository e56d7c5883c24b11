"""The gateway's own gRPC services: its processor cache, and health."""

# ruff: noqa: N802 - methods are named in the protobuf
from __future__ import annotations

import re
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Cache
from triptych_contract.rpc import abort_with
from triptych_contract.v1 import worker_pb2
from triptych_contract.v1.worker_pb2_grpc import (
    CacheAdminServicer,
    add_CacheAdminServicer_to_server,
)

from triptych_gateway.processors.cache import ProcessorCache

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class CacheAdminService(CacheAdminServicer):
    """Tells what the processor cache holds, and drops what another encoder made stale."""

    def __init__(self, cache: ProcessorCache, instance: str) -> None:
        self._cache = cache
        self._instance = instance

    async def Holdings(
        self,
        request: worker_pb2.HoldingsRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> worker_pb2.HoldingsResponse:
        """What is held, by fingerprint."""
        return self._holdings()

    async def DropOthers(
        self,
        request: worker_pb2.DropOthersRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> worker_pb2.DropOthersResponse:
        """Drops every entry of another fingerprint than ``keep``."""
        if not _DIGEST.fullmatch(request.keep):
            error = InvalidRequest("keep: must be 64 lower-case hexadecimal digits")
            await abort_with(context, error)
        entries, freed = self._cache.drop_others(request.keep)
        return worker_pb2.DropOthersResponse(
            entries_dropped=entries, bytes_freed=freed, remaining=self._holdings()
        )

    def _holdings(self) -> worker_pb2.HoldingsResponse:
        return worker_pb2.HoldingsResponse(
            instance=self._instance,
            holdings=[
                worker_pb2.Holding(
                    cache=Cache.PROCESSOR,
                    fingerprint=held.fingerprint,
                    entries=held.entries,
                    bytes=held.size_bytes,
                )
                for held in self._cache.holdings()
            ],
        )


class AdminServer:
    """The gRPC server of a gateway process."""

    def __init__(self, cache: ProcessorCache, instance: str) -> None:
        self._server = grpc.aio.server()
        self._health = health.aio.HealthServicer()
        add_CacheAdminServicer_to_server(CacheAdminService(cache, instance), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    async def start(self, host: str, port: int) -> int:
        """Listens; the port that was taken."""
        taken = self._server.add_insecure_port(f"{host}:{port}")
        await self._server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        return taken

    async def drain(self) -> None:
        """Health says NOT_SERVING from now on; everything still answers."""
        await self._health.enter_graceful_shutdown()

    async def stop(self) -> None:
        """Ends the server."""
        await self._server.stop(grace=1.0)
