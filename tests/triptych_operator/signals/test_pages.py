"""Pages from pods that are as they should be, and from pods that are as bad as can be."""

from __future__ import annotations

import asyncio
import gzip
import time
import tracemalloc

import pytest
from signals.page_servers import Answer, hangs, says, serving, trickles
from triptych_contract.errors import Unavailable
from triptych_operator.signals.pages import PAGE_BYTES, Pages

HERE = "127.0.0.1"
MIB = 1024 * 1024
SECONDS = 60.0  # for a page that comes; on a machine that others use too


async def test_a_page_is_what_the_pod_says() -> None:
    async with (
        serving(says(b"triptych_running_requests 1\n")) as port,
        Pages(port, SECONDS) as pages,
    ):
        assert await pages.page(HERE) == b"triptych_running_requests 1\n"


async def endless(writer: asyncio.StreamWriter) -> None:
    """A page of 100 MB, which does not say so beforehand."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(100):
        writer.write(b"x" * MIB)
        await writer.drain()


async def test_of_a_page_of_100_mb_no_more_is_read_than_one_may_have() -> None:
    tracemalloc.start()
    try:
        async with serving(endless) as port, Pages(port, SECONDS) as pages:
            with pytest.raises(Unavailable, match="more than 2097152 bytes"):
                await pages.page(HERE)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 * MIB


async def test_a_page_of_the_largest_size_is_read() -> None:
    async with serving(says(b"x" * PAGE_BYTES)) as port, Pages(port, SECONDS) as pages:
        assert len(await pages.page(HERE)) == PAGE_BYTES


async def test_what_is_compressed_is_not_unpacked() -> None:
    bomb = gzip.compress(b"x" * 20 * MIB, compresslevel=1)
    answer = says(bomb, "200 OK", "Content-Encoding: gzip")
    async with serving(answer) as port, Pages(port, SECONDS) as pages:
        assert await pages.page(HERE) == bomb


async def junk(writer: asyncio.StreamWriter) -> None:
    writer.write(bytes(range(256)) * 1000)
    await writer.drain()


async def endless_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(100_000):
        writer.write(b"X-%d: %s\r\n" % (number, b"y" * 1000))
        await writer.drain()


@pytest.mark.parametrize(
    "answer",
    [
        says(b"", "503 Service Unavailable"),
        says(b"", "302 Found", "Location: http://127.0.0.1:1/metrics"),
        says(b"short", "200 OK", "Content-Length: 100"),
        junk,
        endless_headers,
    ],
)
async def test_whatever_is_no_page_is_silence(answer: Answer) -> None:
    async with serving(answer) as port, Pages(port, seconds=SECONDS) as pages:
        with pytest.raises(Unavailable, match=HERE):
            await pages.page(HERE)


async def test_a_pod_does_not_say_where_to_ask_instead() -> None:
    asked: list[str] = []

    async def elsewhere(writer: asyncio.StreamWriter) -> None:
        asked.append("")
        first = says(b"", "302 Found", "Location: /other")
        await (first if len(asked) == 1 else says(b"a page"))(writer)

    async with serving(elsewhere) as port, Pages(port, seconds=SECONDS) as pages:
        with pytest.raises(Unavailable, match="HTTP status 302"):
            await pages.page(HERE)
    assert len(asked) == 1


@pytest.mark.parametrize("answer", [hangs, trickles])
async def test_no_page_takes_longer_than_it_may(answer: Answer) -> None:
    async with serving(answer) as port, Pages(port, seconds=0.2) as pages:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="TimeoutError"):
            await pages.page(HERE)
        assert time.monotonic() - began < 30


async def test_where_nobody_listens_there_is_silence() -> None:
    async with serving(says(b"")) as port:
        pass
    async with Pages(port, SECONDS) as pages:
        with pytest.raises(Unavailable):
            await pages.page(HERE)
        with pytest.raises(Unavailable):
            await pages.page("::1")


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with serving(says(b"here")) as port, Pages(port, SECONDS) as pages:
        assert await pages.page(HERE) == b"here"
