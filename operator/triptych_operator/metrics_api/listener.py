"""A TLS socket whose certificates can change while it listens.

asyncio's own servers take theirs once and for all, and lose connections when one replaces another.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from triptych_contract.errors import Unavailable

_HANDSHAKE_SECONDS: Final = 5.0
_MOST_HANDSHAKES: Final = 128  # at a time; whoever comes then is turned away
_PAUSE: Final = 0.1  # seconds, when the process has no file handle left
_logger = logging.getLogger(__name__)


class TlsListener:
    """Listens from its making on, and lets connections in once it has a ``context``.

    Args:
        protocol: makes what speaks on a connection whose handshake is done.

    Raises:
        Unavailable: somebody else listens there, or there is no such address.
    """

    def __init__(self, host: str, port: int, protocol: Callable[[], asyncio.Protocol]) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise Unavailable(f"cannot listen at {host} port {port}: {error}") from error
        self._socket.settimeout(0)
        self.port: Final[int] = self._socket.getsockname()[1]
        self.context: ssl.SSLContext | None = None
        self._protocol = protocol
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Stops listening. Connections that are in stay."""
        tasks = (self._accepting, *self._handshakes)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                _logger.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_PAUSE)
                continue
            if self.context is None or len(self._handshakes) >= _MOST_HANDSHAKES:
                connection.close()
                continue
            task = asyncio.create_task(self._let_in(connection, self.context))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _let_in(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol,
                connection,
                ssl=context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            )
        except OSError:  # one of the two refused the other, or took too long
            connection.close()
