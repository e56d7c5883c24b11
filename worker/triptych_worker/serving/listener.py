"""The gRPC server of a worker: its services, health, reflection, and limits on messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME
from grpc_reflection.v1alpha import reflection
from triptych_contract.config import MIB, Listen
from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Env

from triptych_worker.serving.health import Health

# Prompts are token ids and chunks of pixels about a mebibyte each.
_MAX_MESSAGE_BYTES: Final = 8 * MIB
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # Two workers on one port would share it in silence.
    ("grpc.so_reuseport", 0),
    # Gateways keep idle channels alive across quiet minutes.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
)

# Adds one service to a server.
Registration = Callable[[grpc.aio.Server], None]


class Listener:
    """A bound server. Its address is known before any service is, since leases tell it."""

    def __init__(self, listen: Listen, interceptor: grpc.aio.ServerInterceptor) -> None:
        self._server = grpc.aio.server(interceptors=(interceptor,), options=_OPTIONS)
        self.port = self._bind(listen)
        self.host = advertised_host(listen)
        self.address = join(self.host, self.port)

    async def start(self, services: Mapping[str, Registration]) -> Health:
        """Serves ``services`` by full name, beside health (NOT_SERVING at first) and reflection."""
        health = Health(list(services))
        for register in services.values():
            register(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(health, self._server)
        reflected = (*services, SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(reflected, self._server)
        await self._server.start()
        return health

    async def stop(self, grace: float) -> None:
        """Ends what still runs after ``grace`` seconds."""
        await self._server.stop(grace)

    def _bind(self, listen: Listen) -> int:
        address = join(listen.host, listen.grpc_port)
        try:
            return self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise InvalidRequest(
                f"cannot listen on {address}: is the port taken? choose another with --grpc-port"
            ) from error


def advertised_host(listen: Listen) -> str:
    """Where peers reach this process: as configured, else the pod's address, else loopback."""
    return listen.advertise or os.environ.get(Env.POD_IP) or "127.0.0.1"


def join(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
