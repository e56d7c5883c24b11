"""Where a tier's pods are: fixed addresses, or what DNS answers now."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from triptych_contract.config import Endpoints

_DNS_SECONDS: Final = 3.0


async def addresses_of(endpoints: Endpoints) -> tuple[str, ...] | None:
    """All ``host:port`` of the tier, sorted; None if DNS did not answer, so nothing is known."""
    found = set(endpoints.addresses)
    if endpoints.dns:
        resolved = await _resolved(endpoints.dns)
        if resolved is None:
            return None
        found |= resolved
    return tuple(sorted(found))


async def _resolved(name: str) -> set[str] | None:
    host, _, port = name.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_DNS_SECONDS):
            infos = await loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        # No pod of a headless Service is ready: that is an answer. Everything else is none.
        return set() if error.errno in {socket.EAI_NONAME, socket.EAI_NODATA} else None
    except (TimeoutError, OSError):
        return None
    return {_joined(info[4][0], port) for info in infos}


def _joined(host: str | int, port: str) -> str:
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
