import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
import torch
from memory_tensors import MemoryTensors
from triptych_contract.errors import LeaseExpired
from triptych_worker.domain import Handle, HandleKind, MediaItem, Span
from triptych_worker.stages.embeddings import EmbeddingCache, EmbeddingReader

pytestmark = pytest.mark.torch

OLD, NEW = "aa" * 32, "bb" * 32


def published(tensors: MemoryTensors, key: int, fingerprint: str = OLD) -> Handle:
    rows = torch.full((4, 8), float(key))
    return tensors.publish(HandleKind.EMBEDDING, bytes([key]) * 32, fingerprint, rows)


def items(*handles: Handle) -> list[MediaItem]:
    offsets: Iterator[int] = iter(range(0, 1000, 10))
    return [MediaItem(h, (Span(o, 1), Span(o + 3, 3)), ()) for h, o in zip(handles, offsets)]  # noqa: B905 - offsets go on


def reader(
    tensors: MemoryTensors, capacity: int = 10_000
) -> tuple[EmbeddingReader, EmbeddingCache]:
    cache = EmbeddingCache(capacity)
    return EmbeddingReader(tensors, cache, "worker", width=8), cache


async def test_rows_go_to_the_spans_of_their_picture_in_order() -> None:
    tensors = MemoryTensors()
    embeddings, _ = reader(tensors)
    async with AsyncExitStack() as stack:
        media = items(published(tensors, 1), published(tensors, 2))
        fetched = await embeddings.fetch(media, stack)
    assert [(part.offset, part.rows[:, 0].tolist()) for part in fetched.placed] == [
        (0, [1.0]),
        (3, [1.0] * 3),
        (10, [2.0]),
        (13, [2.0] * 3),
    ]
    assert fetched.hits == 0


async def test_only_what_is_missing_is_fetched_and_leases_of_hits_go_back() -> None:
    tensors = MemoryTensors()
    embeddings, cache = reader(tensors)
    async with AsyncExitStack() as stack:
        await embeddings.fetch(items(published(tensors, 1)), stack)
        media = items(published(tensors, 2), published(tensors, 1))
        fetched = await embeddings.fetch(media, stack)
        await asyncio.sleep(0)
    assert fetched.hits == 1
    assert [part.rows[0, 0].item() for part in fetched.placed] == [2.0, 2.0, 1.0, 1.0]
    assert tensors.borrowed == [b"\x01" * 32, b"\x02" * 32]
    assert tensors.released == [b"\x01" * 32]
    assert (cache.stats().hits, cache.stats().misses) == (1, 2)


async def test_the_cache_stays_within_its_bytes() -> None:
    tensors = MemoryTensors()
    embeddings, cache = reader(tensors, capacity=300)  # two of 128 bytes
    async with AsyncExitStack() as stack:
        for key in (1, 2, 3):
            await embeddings.fetch(items(published(tensors, key)), stack)
    assert cache.stats().bytes == 256
    assert cache.stats().evictions == 1
    assert cache.get(published(tensors, 1)) is None


async def test_dropping_other_fingerprints_frees_them_and_lets_none_back_in() -> None:
    tensors = MemoryTensors()
    embeddings, cache = reader(tensors)
    async with AsyncExitStack() as stack:
        await embeddings.fetch(items(published(tensors, 1, OLD)), stack)
        await embeddings.fetch(items(published(tensors, 2, NEW)), stack)
        assert cache.drop_others(NEW) == (1, 128)
        await embeddings.fetch(items(published(tensors, 3, OLD)), stack)
    assert [(held.fingerprint, held.entries, held.bytes) for held in cache.holdings()] == [
        (NEW, 1, 128)
    ]


async def test_one_lost_embedding_gives_all_leases_back() -> None:
    tensors = MemoryTensors()
    embeddings, _ = reader(tensors)
    handles = [published(tensors, key) for key in (1, 2, 3)]
    del tensors.held[handles[1].lease_id]
    async with AsyncExitStack() as stack:
        with pytest.raises(LeaseExpired):
            await embeddings.fetch(items(*handles), stack)
    await asyncio.sleep(0)
    assert not tensors.held
