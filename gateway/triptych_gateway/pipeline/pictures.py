"""A request's pictures up to the point where they can be sent: fetched, decoded, processed.

Each step is skipped when its result is known, and done once when several requests want it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from triptych_contract.errors import InvalidRequest, MediaUnknown
from triptych_contract.fingerprints import embedding_key
from triptych_contract.names import Count, Stage

from triptych_gateway.conversation import Image
from triptych_gateway.journal import Journal
from triptych_gateway.media.content import Content
from triptych_gateway.media.known import KnownMedia
from triptych_gateway.media.loader import MediaLoader
from triptych_gateway.pipeline.single_flight import SingleFlight
from triptych_gateway.processors.cache import Key, ProcessorCache
from triptych_gateway.processors.pictures import Layout, PictureProcessor, Processed


@dataclass(frozen=True, slots=True)
class Scope:
    """What a picture's results may be shared within: one encoder's making, one tenant."""

    fingerprint: str
    salt: bytes

    def key(self, content: Content) -> Key:
        """Under which the results are cached."""
        return self.fingerprint, embedding_key(content.digest, self.fingerprint, self.salt)


@dataclass(frozen=True, slots=True)
class PreparedPicture:
    """A picture of one request: its content, and what stands for it in the prompt."""

    content: Content
    layout: Layout
    salt: bytes  # of the tenant whose request it is part of

    def key(self, fingerprint: str) -> bytes:
        """Cache key of its embedding."""
        return embedding_key(self.content.digest, fingerprint, self.salt)


class Pictures:
    """Prepares pictures and makes their tensors when an encoder asks for them."""

    def __init__(
        self,
        *,
        loader: MediaLoader,
        processor: PictureProcessor,
        cache: ProcessorCache,
        known: KnownMedia,
        threads: ThreadPoolExecutor,
        max_items: int,
    ) -> None:
        self._loader = loader
        self._processor = processor
        self._cache = cache
        self._known = known
        self._threads = threads
        self._max_items = max_items
        self._flights = SingleFlight[Key, Processed]()

    async def prepare(
        self, images: Sequence[Image], scope: Scope, journal: Journal
    ) -> list[PreparedPicture]:
        """All pictures of a request, side by side.

        Raises:
            InvalidRequest, TooLarge: one of them cannot be used; the message says why.
            MediaUnknown, MediaConflict: one is not what its ``uuid`` stands for.
        """
        if len(images) > self._max_items:
            raise InvalidRequest(
                f"{len(images)} images in one request; the limit is {self._max_items}"
            )
        journals = [Journal() for _ in images]
        tasks = [
            asyncio.ensure_future(self._prepare(image, scope, one))
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
        return await self._processed(picture.content, Scope(fingerprint, picture.salt), journal)

    async def _prepare(self, image: Image, scope: Scope, journal: Journal) -> PreparedPicture:
        with journal.timed(Stage.MEDIA_FETCH):
            content = await self._content(image, scope.salt)
        layout = self._cache.layout(scope.key(content))
        if layout is None:
            layout = (await self._processed(content, scope, journal)).layout
        else:
            journal.count(Count.PROCESSOR_CACHE_HITS)
        journal.count(Count.VISUAL_TOKENS, layout.visual_tokens)
        if image.uuid:  # only now: what cannot be used stands for nothing
            self._known.bind(scope.salt, image.uuid, image.url, content)
        return PreparedPicture(content, layout, scope.salt)

    async def _content(self, image: Image, salt: bytes) -> Content:
        """What the tenant sent under the picture's ``uuid``, else what its URL leads to."""
        known = self._known.find(salt, image.uuid, image.url) if image.uuid else None
        if known is not None:
            return known
        if not image.url:
            raise MediaUnknown(
                "no image is kept under this uuid, here or any more: send the request again with "
                "its image_url"
            )
        return await self._loader.content(image.url)

    async def _processed(self, content: Content, scope: Scope, journal: Journal) -> Processed:
        key = scope.key(content)
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
