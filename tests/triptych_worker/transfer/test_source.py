"""What borrowing does, over a transport that tests steer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import torch
from triptych_contract.errors import (
    DeadlineExceeded,
    FingerprintMismatch,
    InvalidRequest,
    LeaseExpired,
    TooLarge,
    Unavailable,
)
from triptych_worker.domain import Handle, HandleKind
from triptych_worker.transfer.arena import Arena
from triptych_worker.transfer.landing import Landing
from triptych_worker.transfer.layout import checksum
from triptych_worker.transfer.peers import PeerChannels
from triptych_worker.transfer.releases import Releases
from triptych_worker.transfer.source import PeerTensors
from triptych_worker.transfer.store import Origin, TensorStore
from triptych_worker.transfer.transport import Limit, Place

pytestmark = pytest.mark.torch

KIB = 1024
BYTES = bytes(range(256))


def handle_of(name: str = "a", lease: str = "lease-1", **changes: object) -> Handle:
    handle = Handle(
        kind=HandleKind.EMBEDDING,
        lease_id=lease,
        source="127.0.0.1:1",  # nobody answers: releases fail, as they may
        instance="holder",
        key=name.encode() * 32,
        fingerprint="f1",
        shape=(256,),
        dtype="uint8",
        size_bytes=256,
        checksum=checksum(memoryview(BYTES)),
        ttl_seconds=30.0,
        transports=("first", "second"),
    )
    return replace(handle, **changes)


@dataclass
class Steered:
    """A transport that copies ``BYTES`` in, once it is let go."""

    name: str = "first"
    error: Callable[[Handle], Exception | None] = lambda handle: None
    open: threading.Event = field(default_factory=threading.Event)
    pulled: list[str] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def pull(self, handle: Handle, place: Place, limit: Limit) -> None:
        self.pulled.append(handle.lease_id)
        limit.on_cancel(self.cancelled.set)
        assert self.open.wait(60)
        if error := self.error(handle):
            raise error
        place.view[:] = BYTES

    def close(self) -> None: ...


class Bytes:
    """An observer that keeps what was added."""

    def __init__(self) -> None:
        self.added: list[tuple[float, dict[str, str]]] = []

    def seconds(self, stage: str, value: float) -> None: ...

    def add(self, metric: str, amount: float = 1.0, **labels: str) -> None:
        self.added.append((amount, labels))

    def time_per_output_token(self, value: float) -> None: ...


@dataclass
class Receiver:
    source: PeerTensors
    store: TensorStore
    first: Steered
    second: Steered
    observer: Bytes

    @property
    def arriving(self) -> int:
        return self.source.landing.arena.used_bytes

    async def fetch(self, handle: Handle) -> bytes:
        async with self.source.borrow(handle) as tensor:
            return tensor.numpy().tobytes()


@pytest.fixture
async def receiver(request: pytest.FixtureRequest):
    """One whose time no test needs but those that give it, in seconds, as the parameter."""
    first, second, observer = Steered("first"), Steered("second"), Bytes()
    for way in (first, second):
        way.open.set()
    origin = Origin("127.0.0.1:2", "receiver", ("first",))
    store = TensorStore(Arena(4 * KIB), origin, lease_seconds=30.0)
    channels = PeerChannels()
    releases = Releases(channels)
    source = PeerTensors(
        store,
        Landing(Arena(KIB)),
        [first, second],
        releases,
        observer,
        instance="receiver",
        timeout_seconds=getattr(request, "param", 120.0),
    )
    yield Receiver(source, store, first, second, observer)
    for way in (first, second):
        way.open.set()
    await source.close()
    await releases.close()
    channels.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - threads make it true
            await asyncio.sleep(0.001)


async def test_a_tensor_arrives_and_its_room_is_free_again(receiver: Receiver) -> None:
    async with receiver.source.borrow(handle_of()) as tensor:
        assert tensor.numpy().tobytes() == BYTES
        assert receiver.arriving == 256
    assert receiver.arriving == 0
    labels = {"kind": "embedding", "transport": "first", "direction": "received"}
    assert receiver.observer.added == [(256, labels)]


async def test_the_own_handle_is_the_own_memory(receiver: Receiver) -> None:
    published = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    handle = receiver.store.publish(HandleKind.KV, b"k" * 32, "f1", published)
    async with receiver.source.borrow(handle) as tensor:
        assert torch.equal(tensor, published)
        start = tensor.data_ptr() - receiver.store.arena.address
        assert 0 <= start < receiver.store.arena.size_bytes
    assert (receiver.store.leases, receiver.store.arena.used_bytes) == (0, 0)
    with pytest.raises(LeaseExpired):
        await receiver.fetch(handle)
    assert receiver.observer.added == []


async def test_one_embedding_is_fetched_once_for_all_who_ask(receiver: Receiver) -> None:
    receiver.first.open.clear()
    borrows = [
        asyncio.create_task(receiver.fetch(handle_of(lease=f"lease-{number}")))
        for number in range(5)
    ]
    await until(lambda: bool(receiver.first.pulled))
    receiver.first.open.set()
    assert await asyncio.gather(*borrows) == [BYTES] * 5
    assert receiver.first.pulled == ["lease-0"]
    assert receiver.arriving == 0


async def test_an_embedding_that_is_still_borrowed_is_joined(receiver: Receiver) -> None:
    async with receiver.source.borrow(handle_of()) as first:
        async with receiver.source.borrow(handle_of(lease="lease-2")) as second:
            assert first.data_ptr() == second.data_ptr()
        assert receiver.arriving == 256
    assert (receiver.arriving, len(receiver.first.pulled)) == (0, 1)


async def test_kv_is_fetched_for_each_handle(receiver: Receiver) -> None:
    handles = [handle_of(lease=f"lease-{n}", kind=HandleKind.KV) for n in range(2)]
    await asyncio.gather(*(receiver.fetch(handle) for handle in handles))
    assert sorted(receiver.first.pulled) == ["lease-0", "lease-1"]


async def test_who_joined_goes_on_with_its_own_lease_when_the_first_was_over(
    receiver: Receiver,
) -> None:
    receiver.first.open.clear()
    receiver.first.error = lambda handle: (
        LeaseExpired("over") if handle.lease_id == "lease-0" else None
    )
    borrows = [
        asyncio.create_task(receiver.fetch(handle_of(lease=f"lease-{number}")))
        for number in range(3)
    ]
    await until(lambda: bool(receiver.first.pulled))
    receiver.first.open.set()
    results = await asyncio.gather(*borrows, return_exceptions=True)
    assert isinstance(results[0], LeaseExpired)
    assert results[1:] == [BYTES, BYTES]
    assert receiver.first.pulled == ["lease-0", "lease-1"]
    assert receiver.arriving == 0


async def test_another_way_is_tried_when_one_fails(receiver: Receiver) -> None:
    receiver.first.error = lambda handle: Unavailable("broken")
    assert await receiver.fetch(handle_of()) == BYTES
    assert (len(receiver.first.pulled), len(receiver.second.pulled)) == (1, 1)
    assert receiver.observer.added[0][1]["transport"] == "second"


@pytest.mark.parametrize("error", [LeaseExpired("over"), FingerprintMismatch("other")])
async def test_no_other_way_is_tried_when_the_handle_is_the_reason(
    receiver: Receiver, error: Exception
) -> None:
    receiver.first.error = lambda handle: error
    with pytest.raises(type(error)):
        await receiver.fetch(handle_of())
    assert (receiver.second.pulled, receiver.arriving) == ([], 0)


async def test_the_way_both_ends_have_is_taken(receiver: Receiver) -> None:
    assert await receiver.fetch(handle_of(transports=("second",))) == BYTES
    assert receiver.first.pulled == []
    with pytest.raises(Unavailable, match=r"transfer\.transport"):
        await receiver.fetch(handle_of(transports=("third",)))


@pytest.mark.parametrize("receiver", [2.0], indirect=True)
async def test_all_ways_together_keep_the_deadline(receiver: Receiver) -> None:
    for way in (receiver.first, receiver.second):
        way.open.clear()
    with pytest.raises(DeadlineExceeded):
        await asyncio.wait_for(receiver.fetch(handle_of()), 30)
    await until(receiver.second.cancelled.is_set)
    assert receiver.arriving == 512, "a thread still writes there"
    for way in (receiver.first, receiver.second):
        way.open.set()
    await until(lambda: receiver.arriving == 0)


async def test_the_last_to_give_up_ends_the_pull(receiver: Receiver) -> None:
    receiver.first.open.clear()
    one, two = (asyncio.create_task(receiver.fetch(handle_of(lease=lease))) for lease in ("1", "2"))
    await until(lambda: bool(receiver.first.pulled))
    one.cancel()
    await asyncio.sleep(0.01)
    assert not receiver.first.cancelled.is_set()
    two.cancel()
    await asyncio.wait([one, two])
    await until(receiver.first.cancelled.is_set)
    receiver.first.open.set()
    await until(lambda: receiver.arriving == 0)
    assert await receiver.fetch(handle_of(lease="3")) == BYTES


async def test_more_than_fits_waits_for_its_turn(receiver: Receiver) -> None:
    names = [chr(97 + number) for number in range(12)]
    fetched = await asyncio.gather(*(receiver.fetch(handle_of(name)) for name in names))
    assert fetched == [BYTES] * 12
    assert receiver.arriving == 0


async def test_what_can_never_fit_or_is_no_tensor_is_refused(receiver: Receiver) -> None:
    with pytest.raises(TooLarge):
        await receiver.fetch(handle_of(shape=(2 * KIB,), size_bytes=2 * KIB))
    with pytest.raises(InvalidRequest, match="no uint8 tensor"):
        await receiver.fetch(handle_of(shape=(255,)))
    assert receiver.first.pulled == []


async def test_giving_back_own_leases_frees_and_a_dead_holder_does_not_matter(
    receiver: Receiver,
) -> None:
    own = receiver.store.publish(HandleKind.KV, b"k" * 32, "f1", torch.zeros(4))
    await asyncio.wait_for(receiver.source.release([own, handle_of()]), 60)
    assert receiver.store.leases == 0
