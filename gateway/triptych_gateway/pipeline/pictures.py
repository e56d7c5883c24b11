"""A request's pictures up to the point where they can be sent: fetched, decoded, processed.

Each step is skipped when its result is known, and done once when several requests want it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from triptych_contract.errors import InvalidRequest
from triptych_contract.fingerprints import embedding_key, tenant_salt
from triptych_contract.names import Count, Stage

from triptych_gateway.conversation import Image
from triptych_gateway.journal import Journal
from triptych_gateway.media.loader import Content, MediaLoader
from triptych_gateway.pipeline.single_flight import SingleFlight
from triptych_gateway.processors.cache import Key, ProcessorCache
from triptych_gateway.processors.pictures import Layout, PictureProcessor, Processed


@dataclass(frozen=True, slots=True)
class PreparedPicture:
    """A picture of one request: its content, and what stands for it in the prompt."""

    content: Content
    layout: Layout

    def key(self, fingerprint: str, tenant: str = "") -> bytes:
        """Cache key of its embedding."""
        return embedding_key(self.content.digest, fingerprint, tenant_salt(tenant))


class Pictures:
    """Prepares pictures and makes their tensors when an encoder asks for them."""

    def __init__(
        self,
        loader: MediaLoader,
        processor: PictureProcessor,
        cache: ProcessorCache,
        threads: ThreadPoolExecutor,
        max_items: int,
    ) -> None:
        self._loader = loader
        self._processor = processor
        self._cache = cache
        self._threads = threads
        self._max_items = max_items
        self._flights = SingleFlight[Key, Processed]()

    async def prepare(
        self, images: Sequence[Image], fingerprint: str, journal: Journal
    ) -> list[PreparedPicture]:
        """All pictures of a request, side by side.

        Raises:
            InvalidRequest, TooLarge: one of them cannot be used; the message says why.
        """
        if len(images) > self._max_items:
            raise InvalidRequest(
                f"{len(images)} images in one request; the limit is {self._max_items}"
            )
        journals = [Journal() for _ in images]
        tasks = [
            asyncio.ensure_future(self._prepare(image, fingerprint, one))
            for image, one in zip(images, journals, strict=True)
        ]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            journal.join(journals)

    async def tensors(
        self, picture: PreparedPicture, fingerprint: str, journal: Journal
    ) -> Processed:
        """What the encoder reads, from the cache or made now.

        Raises:
            InvalidRequest, TooLarge: the picture cannot be decoded.
        """
        return await self._processed(picture.content, fingerprint, journal)

    async def _prepare(self, image: Image, fingerprint: str, journal: Journal) -> PreparedPicture:
        with journal.timed(Stage.MEDIA_FETCH):
            content = await self._loader.content(image.url)
        layout = self._cache.layout((fingerprint, content.digest))
        if layout is None:
            layout = (await self._processed(content, fingerprint, journal)).layout
        else:
            journal.count(Count.PROCESSOR_CACHE_HITS)
        journal.count(Count.VISUAL_TOKENS, layout.visual_tokens)
        return PreparedPicture(content, layout)

    async def _processed(self, content: Content, fingerprint: str, journal: Journal) -> Processed:
        key = (fingerprint, content.digest)
        found = self._cache.get(key)
        if found is not None:
            return found
        return await self._flights.run(key, lambda: self._process(key, content, journal))

    async def _process(self, key: Key, content: Content, journal: Journal) -> Processed:
        began = time.perf_counter()
        async with self._loader.pixels(content) as pixels:
            journal.add(Stage.MEDIA_DECODE, time.perf_counter() - began)
            with journal.timed(Stage.PROCESSOR):
                loop = asyncio.get_running_loop()
                processed = await loop.run_in_executor(
                    self._threads, self._processor.process, pixels
                )
        self._cache.put(key, processed, time.perf_counter() - began)
        return processed
