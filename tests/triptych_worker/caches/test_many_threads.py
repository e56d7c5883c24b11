"""The caches of embeddings and of prompts under many threads: never over their bytes, never without
what somebody uses, books exact, and no lock held while bytes move.

TRIPTYCH_SWEEP=full makes 100,000 look-ups in 1 GiB of each; otherwise fewer are made in less.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
import torch
from triptych_contract.errors import Overloaded
from triptych_worker.domain import HandleKind
from triptych_worker.language.layout import KvLayout
from triptych_worker.language.pool import KvPool
from triptych_worker.language.prefix_cache import Held, PrefixCache
from triptych_worker.language.prefixes import BLOCK_TOKENS, Block
from triptych_worker.transfer.arena import Arena
from triptych_worker.transfer.store import Origin, TensorStore

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]

FULL = os.environ.get("TRIPTYCH_SWEEP") == "full"
THREADS = 16
LOOKUPS = (100_000 if FULL else 4_000) // THREADS  # of each thread
CAPACITY = 1 << (30 if FULL else 24)
EMBEDDING_BYTES = 1 << 16
LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=32, dtype=torch.float32)
BLOCK_BYTES = BLOCK_TOKENS * LAYOUT.bytes_per_token
FINGERPRINT = "f1" * 32
DEADLINE = 60.0  # seconds, for what takes none


def mixed(seed: int, most: int) -> Iterator[int]:
    """Numbers below ``most``: every other one is one of a few."""
    drawn = random.Random(seed)
    while True:
        yield drawn.randrange(most)
        yield int(drawn.paretovariate(1.0)) % most


def in_threads(work: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(threads)))


def new_store() -> TensorStore:
    return TensorStore(Arena(CAPACITY), Origin("h:1", "boot", ("grpc",)), lease_seconds=600.0)


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_embeddings_are_whole_while_they_are_leased_and_the_books_are_exact() -> None:
    store = new_store()
    numbers = 3 * CAPACITY // EMBEDDING_BYTES

    def work(thread: int) -> None:
        for lookup, number in zip(range(LOOKUPS), mixed(thread, numbers), strict=False):
            handle = store.lease(key(number), FINGERPRINT)
            if handle is None:
                content = torch.full((EMBEDDING_BYTES // 8,), number)
                handle = store.publish(HandleKind.EMBEDDING, key(number), FINGERPRINT, content)
            with store.reading(handle.lease_id, handle.key, FINGERPRINT) as held:
                store.release([handle.lease_id])
                there = store.arena.tensor(held.start, torch.Size(held.shape), held.dtype)
                assert there[0] == there[-1] == number
            if lookup % 50 == thread:
                store.check_integrity()
                assert store.stats().bytes <= CAPACITY

    in_threads(work)
    store.check_integrity()
    stats, [held] = store.stats(), store.holdings()
    assert stats.hits + stats.misses == THREADS * LOOKUPS
    assert min(stats.hits, stats.evictions) > 0
    assert stats.bytes == held.bytes == held.entries * EMBEDDING_BYTES == store.arena.used_bytes
    assert held.leased_bytes == store.leases == 0


class Prompts:
    """Prompts that are the leaves of a binary tree, with a block for each node on the way, kept by
    one thread and found by others."""

    def __init__(self, blocks_each: int) -> None:
        self.cache = PrefixCache(LAYOUT, CAPACITY)
        self.full, self.done = Event(), Event()
        self._blocks_each = blocks_each
        self._most = 1 << blocks_each
        self._pool = KvPool(LAYOUT, blocks_each * BLOCK_TOKENS, torch.device("cpu"))

    def keep(self) -> None:
        """Keeps until the others are done and everything has gone once."""
        for prompt in mixed(1000, self._most):
            numbers = self._numbers(prompt)
            for place, number in enumerate(numbers):
                self._pool.heads(place * BLOCK_TOKENS, BLOCK_TOKENS).fill_(number)
            self.cache.keep(_blocks(numbers), self._pool, 0, 0.001)
            evictions = self.cache.stats().evictions
            if evictions:
                self.full.set()
            if self.done.is_set() and evictions > 2 * CAPACITY // BLOCK_BYTES:
                return

    def find(self, thread: int) -> tuple[int, int, Sequence[Held]]:
        """Blocks found and asked for, and the first that were found, which are not released."""
        prompts = mixed(thread, self._most)
        found, asked, first = self._find_one(next(prompts))
        for lookup, prompt in zip(range(1, LOOKUPS), prompts, strict=False):
            more, of, held = self._find_one(prompt)
            found, asked = found + more, asked + of
            if lookup % 50 == thread:
                self.cache.check_integrity()
            self.cache.release(held)
        return found, asked, first

    def _find_one(self, prompt: int) -> tuple[int, int, Sequence[Held]]:
        numbers = self._numbers(prompt)
        blocks = _blocks(numbers)
        held = self.cache.find(blocks)
        self.cache.missed(len(blocks) - len(held))
        for each, block, number in zip(held, blocks, numbers, strict=False):
            assert each.block == block
            assert each.kv.min() == each.kv.max() == number
        return len(held), len(blocks), held

    def _numbers(self, prompt: int) -> list[int]:
        levels = range(self._blocks_each)
        return [(1 << level) | (prompt >> (self._blocks_each - level)) for level in levels]


def _blocks(numbers: Iterable[int]) -> list[Block]:
    return [Block(key(number), "") for number in numbers]


def test_prompts_are_whole_while_they_are_copied_and_the_books_are_exact() -> None:
    prompts = Prompts(17 if FULL else 12)
    cache = prompts.cache
    with ThreadPoolExecutor(1) as engine:
        keeping = engine.submit(prompts.keep)
        try:
            assert prompts.full.wait(DEADLINE)
            found, asked, firsts = zip(*in_threads(prompts.find), strict=True)
        finally:
            prompts.done.set()
            keeping.result()  # what has ended it, if it did, is why the others waited in vain
    cache.check_integrity()
    stats, [held] = cache.stats(), cache.holdings()
    assert stats.hits == sum(found) > 0
    assert stats.hits + stats.misses == sum(asked)
    assert stats.seconds_saved == pytest.approx(stats.hits * 0.001)
    assert stats.bytes == held.bytes == held.entries * BLOCK_BYTES <= CAPACITY
    assert (
        held.leased_bytes == len({each.block for first in firsts for each in first}) * BLOCK_BYTES
    )
    for first in firsts:
        again = cache.find([each.block for each in first])
        assert again == first
        cache.release(again)
        cache.release(first)
    assert cache.holdings()[0].leased_bytes == 0


class SlowTensor(torch.Tensor):
    """Takes until it is told to be copied anywhere."""

    begun: Event
    go_on: Event

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.Tensor.copy_:
            cls.begun.set()
            assert cls.go_on.wait(DEADLINE)
        return super().__torch_function__(function, types, args, kwargs or {})


class SlowPool(KvPool):
    """A pool that takes until it is told to be read."""

    def __init__(self) -> None:
        super().__init__(LAYOUT, 4 * BLOCK_TOKENS, torch.device("cpu"))
        self.begun, self.go_on = Event(), Event()

    def heads(self, start: int, length: int) -> torch.Tensor:
        self.begun.set()
        assert self.go_on.wait(DEADLINE)
        return super().heads(start, length)


def test_nobody_waits_while_an_embedding_is_copied() -> None:
    store = new_store()
    SlowTensor.begun, SlowTensor.go_on = Event(), Event()
    other = store.publish(HandleKind.EMBEDDING, key(1), FINGERPRINT, torch.zeros(8))
    slow = torch.ones(8).as_subclass(SlowTensor)
    with ThreadPoolExecutor(2) as threads:
        copying = threads.submit(store.publish, HandleKind.EMBEDDING, key(2), FINGERPRINT, slow)
        assert SlowTensor.begun.wait(DEADLINE)
        assert threads.submit(store.lease, key(1), FINGERPRINT).result(DEADLINE) is not None
        assert threads.submit(store.release, [other.lease_id]).result(DEADLINE) == 1
        assert threads.submit(store.lease, key(2), FINGERPRINT).result(DEADLINE) is None
        assert not copying.done()
        SlowTensor.go_on.set()
        assert copying.result(DEADLINE).key == key(2)


def test_nobody_waits_while_keys_and_values_are_copied() -> None:
    cache, pool = PrefixCache(LAYOUT, CAPACITY), SlowPool()
    blocks = [Block(key(number), "") for number in range(3)]
    with ThreadPoolExecutor(2) as threads:
        copying = threads.submit(cache.keep, blocks, pool, 0, 0.0)
        assert pool.begun.wait(DEADLINE)
        assert threads.submit(cache.find, blocks).result(DEADLINE) == ()
        assert threads.submit(cache.stats).result(DEADLINE).bytes == 0
        assert not copying.done()
        pool.go_on.set()
        copying.result(DEADLINE)
    held = cache.find(blocks)
    assert [each.block for each in held] == blocks
    cache.release(held)


def test_what_all_lease_at_once_leaves_no_room_and_stays_whole() -> None:
    store = new_store()
    handles = [
        store.publish(
            HandleKind.EMBEDDING, key(number), FINGERPRINT, torch.full((CAPACITY // 64,), number)
        )
        for number in range(8)
    ]

    def crowd(thread: int) -> None:
        for number in range(8, 8 + 40 // THREADS):
            content = torch.full((CAPACITY // 64,), thread)
            with pytest.raises(Overloaded):
                store.publish(HandleKind.EMBEDDING, key(number), FINGERPRINT, content)

    in_threads(crowd)
    for number, handle in enumerate(handles):
        with store.reading(handle.lease_id, handle.key, FINGERPRINT) as held:
            there = store.arena.tensor(held.start, torch.Size(held.shape), held.dtype)
            assert there.min() == there.max() == number
    store.check_integrity()
