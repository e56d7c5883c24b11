"""Embeddings for prompts: from the cache of this process, or pulled from the encoder that has them.

Embeddings that this very process holds are read where they are, and never cached a second time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import torch
from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Cache

from triptych_worker.caches.lru import ByteLru
from triptych_worker.domain import CacheStats, Handle, Holding, MediaItem, TensorSource
from triptych_worker.language.sequence import Placed
from triptych_worker.stages.returns import LeaseReturns


class EmbeddingCache:
    """Embeddings that were fetched, bounded in bytes. Any thread may call any method."""

    def __init__(self, capacity_bytes: int) -> None:
        self._lock = threading.Lock()
        self._entries: ByteLru[tuple[bytes, str], torch.Tensor] = ByteLru(
            Cache.EMBEDDING, capacity_bytes
        )

    def get(self, handle: Handle) -> torch.Tensor | None:
        """What the handle leads to, if it is here; counts a hit or a miss."""
        with self._lock:
            return self._entries.get((handle.key, handle.fingerprint))

    def put(self, handle: Handle, rows: torch.Tensor, seconds: float) -> None:
        """Keeps a tensor of our own that took ``seconds`` to fetch."""
        with self._lock:
            self._entries.put(
                (handle.key, handle.fingerprint),
                rows,
                fingerprint=handle.fingerprint,
                size_bytes=rows.nbytes,
                seconds=seconds,
            )

    def holdings(self) -> Sequence[Holding]:
        """What is held, by fingerprint."""
        with self._lock:
            return self._entries.holdings()

    def drop_others(self, keep: str) -> tuple[int, int]:
        """Drops every embedding of another fingerprint; entries and bytes that went."""
        with self._lock:
            dropped = self._entries.drop_others(keep)
        return len(dropped), sum(rows.nbytes for rows in dropped)

    def stats(self) -> CacheStats:
        """Running totals."""
        with self._lock:
            return self._entries.stats()


@dataclass(frozen=True, slots=True)
class Fetched:
    """The embeddings of one prompt. ``hits`` of its pictures were in the cache."""

    placed: tuple[Placed, ...] = ()
    hits: int = 0
    seconds: float = 0.0


class EmbeddingReader:
    """Finds the embeddings of a prompt.

    Args:
        source: leads from handles to tensors.
        cache: of what other processes made.
        instance: this process; what it holds itself is not cached.
        width: of an embedding row that the language model takes.
    """

    def __init__(
        self, source: TensorSource, cache: EmbeddingCache, instance: str, width: int
    ) -> None:
        self._source = source
        self._cache = cache
        self._instance = instance
        self._width = width
        self._returns = LeaseReturns(source)

    async def fetch(self, media: Sequence[MediaItem], until: AsyncExitStack) -> Fetched:
        """All embeddings of ``media``, fetched at the same time, valid until ``until`` closes.

        Every lease is used or given back, also when this fails or is cancelled.

        Raises:
            InvalidRequest: an embedding has not the rows of its spans or the model's width.
            TriptychError: as ``TensorSource.borrow``.
        """
        if not media:
            return Fetched()
        began = time.perf_counter()
        cached = [self._cache.get(item.handle) for item in media]
        self.release([item for item, rows in zip(media, cached, strict=True) if rows is not None])
        missing = [item for item, rows in zip(media, cached, strict=True) if rows is None]
        pulled = iter(await self._pull_all(missing, until))
        rows_of = [next(pulled) if rows is None else rows for rows in cached]
        placed = [
            part
            for item, rows in zip(media, rows_of, strict=True)
            for part in _placed(item, rows, self._width)
        ]
        hits = len(media) - len(missing)
        return Fetched(tuple(placed), hits, time.perf_counter() - began)

    def release(self, media: Sequence[MediaItem]) -> None:
        """Gives leases back that are not used, without waiting for it."""
        self._returns.give_back([item.handle for item in media])

    async def _pull_all(
        self, media: Sequence[MediaItem], until: AsyncExitStack
    ) -> list[torch.Tensor]:
        tasks = [asyncio.create_task(self._pull(item.handle, until)) for item in media]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.release(media)
            raise

    async def _pull(self, handle: Handle, until: AsyncExitStack) -> torch.Tensor:
        if handle.instance == self._instance:
            return await until.enter_async_context(self._source.borrow(handle))
        began = time.perf_counter()
        async with self._source.borrow(handle) as landed:
            rows = await asyncio.to_thread(landed.clone)
        self._cache.put(handle, rows, time.perf_counter() - began)
        return rows


def _placed(item: MediaItem, rows: torch.Tensor, width: int) -> Iterator[Placed]:
    """The rows that go to each span of a picture."""
    lengths = [span.length for span in item.spans]
    if tuple(rows.shape) != (sum(lengths), width):
        raise InvalidRequest(
            f"an embedding of shape {tuple(rows.shape)} does not fill {sum(lengths)} placeholder"
            f" tokens of width {width}; use the encoder and processor of the served model"
        )
    taken = 0
    for span in item.spans:
        yield Placed(span.offset, rows[taken : taken + span.length])
        taken += span.length
