"""Pages of metrics, fetched from pods that may be slow, hostile or not there."""

from __future__ import annotations

import asyncio
from typing import Final, Self

import aiohttp
from triptych_contract.errors import Unavailable
from triptych_contract.names import Port

PAGE_SECONDS: Final = 4.0  # for one page; a worker at its limit has little time for its own
PAGE_BYTES: Final = 2 * 1024 * 1024  # a worker's page has 20 KB
_AT_A_TIME: Final = 64
_OK: Final = 200


class Pages:
    """Fetches pages. Use as an async context manager, which closes its connections."""

    def __init__(self, port: int = Port.METRICS, seconds: float = PAGE_SECONDS) -> None:
        self._port = port
        self._seconds = seconds
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    async def __aenter__(self) -> Self:
        # Neither the environment's proxies nor redirects or cookies have a say in where a pod is,
        # and what is compressed is not unpacked, for its size is known only then.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "text/plain", "Accept-Encoding": "identity"},
            auto_decompress=False,
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def page(self, address: str) -> bytes:
        """The page of the pod at ``address``, an IP address.

        Raises:
            Unavailable: there is none within the time and size that one may take.
        """
        async with self._slots:
            try:
                async with asyncio.timeout(self._seconds):
                    return await self._fetch(address)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                raise Unavailable(f"{address}: {str(error) or type(error).__name__}") from error

    async def _fetch(self, address: str) -> bytes:
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{self._port}/metrics"
        async with self._session.get(url, allow_redirects=False) as answer:
            if answer.status != _OK:
                raise Unavailable(f"{address}: HTTP status {answer.status}")
            page = bytearray()
            async for chunk in answer.content.iter_any():
                page += chunk
                if len(page) > PAGE_BYTES:
                    raise Unavailable(f"{address}: a page of more than {PAGE_BYTES} bytes")
            return bytes(page)
