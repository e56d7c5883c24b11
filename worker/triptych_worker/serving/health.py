"""The standard health service: one status for the process and every service in it."""

# ruff: noqa: N802 - methods are named in the protobuf
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_OVERALL: Final = ""
_Context = grpc.aio.ServicerContext[Any, Any]


# The library's own asyncio servicer begins as SERVING, and one watcher that does not read keeps it
# from ever changing its status.
class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # its stubs are untyped
    """NOT_SERVING until told otherwise."""

    def __init__(self, services: Sequence[str]) -> None:
        self._names = frozenset((_OVERALL, *services))
        self._serving = False
        self._changed = asyncio.Event()

    def set(self, *, serving: bool) -> None:
        """Tells everybody who asks or watches."""
        self._serving = serving
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> health_pb2.HealthCheckResponse:
        """The status now; NOT_FOUND for a service that this tier has not."""
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, "this tier has no such service")
        return self._status(request.service)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The status now and after every change."""
        while True:
            changed = self._changed
            yield self._status(request.service)
            await changed.wait()

    def _status(self, service: str) -> health_pb2.HealthCheckResponse:
        response = health_pb2.HealthCheckResponse
        if service not in self._names:
            return response(status=response.SERVICE_UNKNOWN)
        return response(status=response.SERVING if self._serving else response.NOT_SERVING)
