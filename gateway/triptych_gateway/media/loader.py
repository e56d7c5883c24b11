"""A picture's way into the gateway: reference to content, content to pixels, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from triptych_contract.config import MediaLimits
from triptych_contract.errors import TooLarge

from triptych_gateway.media.budget import ByteBudget
from triptych_gateway.media.content import Content
from triptych_gateway.media.data_urls import decode_data_url, is_data_url
from triptych_gateway.media.decode import Pixels
from triptych_gateway.media.fetch import Fetcher
from triptych_gateway.media.formats import dimensions, format_of
from triptych_gateway.media.pool import DecodePool

# Below this, decoding base64 and hashing on the loop is quicker than handing it to a thread.
_THREAD_BYTES: Final = 256 * 1024
_RGB: Final = 3


class MediaLoader:
    """Turns references into content and content into pixels."""

    def __init__(
        self, limits: MediaLimits, fetcher: Fetcher, pool: DecodePool, budget: ByteBudget
    ) -> None:
        self._limits = limits
        self._fetcher = fetcher
        self._pool = pool
        self._budget = budget

    async def content(self, url: str) -> Content:
        """The bytes behind a ``data:`` or ``https:`` URL.

        Raises:
            InvalidRequest: malformed, refused or unreachable.
            TooLarge: more than one picture may be.
        """
        if not is_data_url(url):
            encoded = await self._fetcher.fetch(url)
            return await asyncio.to_thread(Content.of, encoded)
        if len(url) < _THREAD_BYTES:
            return self._inline(url)
        return await asyncio.to_thread(self._inline, url)

    def _inline(self, url: str) -> Content:
        return Content.of(decode_data_url(url, self._limits.max_bytes))

    @asynccontextmanager
    async def pixels(self, content: Content) -> AsyncIterator[Pixels]:
        """The decoded picture; its bytes count against the bound of all requests until the end of
        the ``async with``.

        Raises:
            InvalidRequest: not a picture of an accepted format, damaged, or too slow to decode.
            TooLarge: more pixels than one picture may have.
        """
        kind = format_of(content.encoded)
        width, height = dimensions(content.encoded, kind)
        if width * height > self._limits.max_pixels:
            raise TooLarge(
                f"an image has {width} x {height} pixels; the limit is "
                f"{self._limits.max_pixels} in all"
            )
        async with self._budget.hold(width * height * _RGB):
            yield await self._pool.decode(content.encoded, kind)
