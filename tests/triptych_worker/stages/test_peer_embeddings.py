"""Embeddings that go from one encoder's store to another's, and what keeps them from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
import torch
from triptych_contract.errors import TransferCorrupted, Unavailable
from triptych_worker.domain import Handle, HandleKind
from triptych_worker.stages import peer_embeddings
from triptych_worker.stages.peer_embeddings import PeerEmbeddings
from triptych_worker.transfer.arena import Arena
from triptych_worker.transfer.store import Origin, TensorStore

pytestmark = pytest.mark.torch

OURS, OTHER = "a" * 64, "b" * 64
WIDTH = 8
KEY = b"k" * 32


def store_of(instance: str) -> TensorStore:
    return TensorStore(Arena(1 << 16), Origin("127.0.0.1:1", instance, ("grpc",)), lease_seconds=30)


@dataclass
class Peer:
    """Another encoder: its store, how it answers, and how its tensors travel."""

    store: TensorStore = field(default_factory=lambda: store_of("peer"))
    asked: list[bytes] = field(default_factory=list)
    borrowed: int = 0
    change: dict[str, object] = field(default_factory=dict)
    error: Exception | None = None
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def lease(self, peer: str, key: bytes, fingerprint: str) -> Handle | None:
        assert peer == "10.0.0.2:50051"
        self.asked.append(key)
        await self.open.wait()
        if isinstance(self.error, Unavailable):
            raise self.error
        handle = self.store.lease(key, fingerprint)
        return handle and replace(handle, **self.change)

    @asynccontextmanager
    async def borrow(self, handle: Handle) -> AsyncIterator[torch.Tensor]:
        if self.error:
            raise self.error
        self.borrowed += 1
        with self.store.reading(handle.lease_id, handle.key, handle.fingerprint) as held:
            yield self.store.arena.tensor(held.start, held.shape, held.dtype)
        self.store.release([handle.lease_id])

    async def release(self, handles: Sequence[Handle]) -> None:
        self.store.release([handle.lease_id for handle in handles])


@dataclass
class Pair:
    """An encoder beside a peer that holds one embedding."""

    peer: Peer
    own: TensorStore
    peers: PeerEmbeddings

    async def take_over(self, key: bytes = KEY) -> bool:
        return await self.peers.take_over(key, "10.0.0.2:50051")


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    # On a machine that others use too, a pull may take longer than it is worth.
    monkeypatch.setattr(peer_embeddings, "_SECONDS", 60.0)
    peer, own = Peer(), store_of("own")
    peer.open.set()
    rows = torch.arange(4.0 * WIDTH).reshape(4, WIDTH)
    made = peer.store.publish(HandleKind.EMBEDDING, KEY, OURS, rows)
    peer.store.release([made.lease_id])
    return Pair(peer, own, PeerEmbeddings(peer, peer, own, fingerprint=OURS, width=WIDTH))


def nothing_is_leased(pair: Pair) -> bool:
    for store in (pair.own, pair.peer.store):
        store.check_integrity()
    return (pair.own.leases, pair.peer.store.leases) == (0, 0)


async def test_an_embedding_is_taken_over_as_it_was_made(pair: Pair) -> None:
    assert await pair.take_over()
    assert nothing_is_leased(pair)
    own, theirs = pair.own.lease(KEY, OURS), pair.peer.store.lease(KEY, OURS)
    assert own and theirs
    assert (own.checksum, own.shape, own.instance) == (theirs.checksum, (4, WIDTH), "own")


async def test_what_the_peer_does_not_have_is_a_miss(pair: Pair) -> None:
    assert not await pair.take_over(b"x" * 32)
    assert pair.own.lease(b"x" * 32, OURS) is None


async def test_many_who_ask_at_a_time_pull_it_once(pair: Pair) -> None:
    pair.peer.open.clear()
    asking = [asyncio.create_task(pair.take_over()) for _ in range(30)]
    await asyncio.sleep(0)
    asking[0].cancel()
    pair.peer.open.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert answers[1:] == [True] * 29
    assert (len(pair.peer.asked), pair.peer.borrowed) == (1, 1)
    assert nothing_is_leased(pair)


async def test_more_than_a_few_at_a_time_are_not_waited_for(pair: Pair) -> None:
    pair.peer.open.clear()
    asking = [asyncio.create_task(pair.take_over(bytes([n]) * 32)) for n in range(8)]
    await asyncio.sleep(0)
    assert not await pair.take_over()
    pair.peer.open.set()
    assert await asyncio.gather(*asking) == [False] * 8
    assert await pair.take_over()


@pytest.mark.parametrize(
    "change",
    [
        {"key": b"x" * 32},
        {"fingerprint": OTHER},
        {"kind": HandleKind.KV},
        {"shape": (8, 4)},
        {"shape": (32,)},
    ],
)
async def test_what_is_not_the_embedding_of_that_key_is_refused(
    pair: Pair, change: dict[str, object]
) -> None:
    pair.peer.change = change
    assert not await pair.take_over()
    assert pair.peer.borrowed == 0
    assert nothing_is_leased(pair)
    assert pair.own.lease(KEY, OURS) is None


@pytest.mark.parametrize("error", [Unavailable("gone"), TransferCorrupted("checksum")])
async def test_a_peer_that_fails_is_a_miss(pair: Pair, error: Exception) -> None:
    pair.peer.error = error
    assert not await pair.take_over()
    assert pair.own.lease(KEY, OURS) is None


async def test_a_peer_that_does_not_answer_is_not_waited_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # here it is the time that a pull is worth
    pair.peer.open.clear()
    async with asyncio.timeout(10):
        assert not await pair.take_over()


async def test_an_embedding_of_a_dropped_encoder_is_not_taken_in(pair: Pair) -> None:
    pair.own.drop_others(OTHER)
    assert not await pair.take_over()
    assert pair.own.holdings() == []
