"""Pages of metrics at the addresses of pods that kwok plays, which are addresses of loopback."""

from __future__ import annotations

import asyncio
import ipaddress
import random
from collections.abc import Mapping
from typing import Final, Self

from cluster.kwok import NODE_LABEL
from prometheus_client import generate_latest
from triptych_contract.names import Port
from triptych_worker.domain import Capacity, Load
from triptych_worker.serving.metrics import Metrics

_TEXT: Final = "text/plain; version=0.0.4"  # without it Prometheus reads no page
ADDRESSES: Final = 64  # from the first of the network on; kwok gives them out in order


def random_network() -> str:
    """Addresses of loopback that no other run on this machine has, most likely."""
    return f"127.{random.randint(64, 250)}.{random.randint(0, 250)}.0/24"


def played_by(nodes: str) -> dict[str, object]:
    """A tier's pod template whose pods go to the nodes that the kwok called ``nodes`` plays."""
    return {
        "spec": {
            "nodeSelector": {NODE_LABEL: nodes},
            "tolerations": [{"key": NODE_LABEL, "operator": "Exists"}],
        }
    }


class PodPages:
    """Answers as idle workers would, but for the ``loads`` of some addresses and what is in
    ``besides`` of some, and not at all while it is ``silent``. A context manager."""

    def __init__(self, network: str) -> None:
        hosts = ipaddress.ip_network(network).hosts()
        self._addresses = [str(next(hosts)) for _ in range(ADDRESSES)]
        self.loads: Mapping[str, Load] = {}
        self.besides: Mapping[str, bytes] = {}  # further lines of their pages
        self.silent = False
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._answer, self._addresses, Port.METRICS)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("sockname")[0]
        await reader.readuntil(b"\r\n\r\n")
        if self.silent:
            writer.close()
            return
        body = _page(self.loads.get(address, Load())) + self.besides.get(address, b"")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        writer.close()


def _page(load: Load) -> bytes:
    """The page that a worker with this load serves."""
    metrics = Metrics()
    metrics.watch(lambda: load, Capacity, lambda: (), lambda: ())
    return generate_latest(metrics.registry)
