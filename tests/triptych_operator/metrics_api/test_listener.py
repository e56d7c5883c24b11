"""How many a TLS socket lets knock at a time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from triptych_operator.metrics_api.certificates import Authority, server_context
from triptych_operator.metrics_api.listener import TlsListener

HERE = "127.0.0.1"
MOST = 128


async def test_who_comes_while_too_many_are_at_the_door_is_turned_away_at_once() -> None:
    now = datetime.now(UTC)
    authority = Authority(now)
    listener = TlsListener(HERE, 0, asyncio.Protocol)
    listener.context = server_context(
        authority.issue(["metrics"], now), authority.certificate.decode()
    )
    silent = [await asyncio.open_connection(HERE, listener.port) for _ in range(MOST)]
    reader, writer = await asyncio.open_connection(HERE, listener.port)
    try:
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        waiting = [one for one, _ in silent if not one.at_eof()]
        assert waiting, "those that came first still have their time"
    finally:
        for _, one in (*silent, (reader, writer)):
            one.close()
        await listener.close()
