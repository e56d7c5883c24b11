"""Servers of pages for tests: good ones, and the worst that a pod may answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from prometheus_client import generate_latest
from triptych_worker.domain import CacheStats, Capacity, Load
from triptych_worker.serving.metrics import Metrics

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def worker_page(load: Load | None = None, caches: Sequence[CacheStats] = ()) -> bytes:
    """The page of a worker with this load and these caches."""
    metrics = Metrics()
    metrics.watch(lambda: load or Load(), Capacity, lambda: caches, lambda: ())
    return generate_latest(metrics.registry)


@contextlib.asynccontextmanager
async def serving(answer: Answer, *addresses: str) -> AsyncIterator[int]:
    """A port at which ``answer`` answers any request, at ``addresses`` of loopback."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    others = [await asyncio.start_server(handle, one, port) for one in addresses]
    try:
        yield port
    finally:
        for one in (server, *others):
            one.close()


def says(body: bytes, status: str = "200 OK", *headers: str) -> Answer:
    """Answers with ``body``."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()

    return answer


async def hangs(writer: asyncio.StreamWriter) -> None:
    """Answers nothing for as long as anybody listens."""
    await asyncio.sleep(60)


async def trickles(writer: asyncio.StreamWriter) -> None:
    """Begins to answer, and never ends."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"# a line more\n")
        await writer.drain()
        await asyncio.sleep(0.01)
