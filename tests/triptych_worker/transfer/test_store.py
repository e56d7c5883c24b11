from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from transfer.stores import EMBEDDING, KIB, KV, ONE, TWO, Clock, key, new_store, publish, used
from triptych_contract.errors import (
    FingerprintMismatch,
    InvalidRequest,
    LeaseExpired,
    Overloaded,
    TooLarge,
)
from triptych_worker.domain import Handle, Holding
from triptych_worker.transfer.layout import checksum
from triptych_worker.transfer.store import TensorStore

pytestmark = pytest.mark.torch


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> TensorStore:
    return new_store(clock)


def test_a_handle_tells_everything_a_reader_checks(store: TensorStore) -> None:
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    handle = store.publish(EMBEDDING, key("a"), ONE, tensor)
    assert handle == Handle(
        kind=EMBEDDING,
        lease_id=handle.lease_id,
        source="10.0.0.1:50051",
        instance="boot-1",
        key=key("a"),
        fingerprint=ONE,
        shape=(2, 3),
        dtype="bfloat16",
        size_bytes=12,
        checksum=checksum(memoryview(tensor.view(torch.uint8).numpy()).cast("B")),
        ttl_seconds=30.0,
        transports=("nixl", "grpc"),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_what_is_read_is_what_was_published(store: TensorStore, dtype: torch.dtype) -> None:
    tensor = torch.arange(24).reshape(2, 3, 4).to(dtype).transpose(0, 2)
    handle = store.publish(KV, key("a"), ONE, tensor)
    with store.reading(handle.lease_id, key("a"), ONE) as held:
        assert torch.equal(store.arena.tensor(held.start, held.shape, held.dtype), tensor)


def test_an_element_type_that_does_not_travel_is_refused(store: TensorStore) -> None:
    with pytest.raises(InvalidRequest, match="complex64"):
        store.publish(KV, key("a"), ONE, torch.zeros(2, dtype=torch.complex64))
    assert used(store) == 0


def test_an_embedding_that_is_not_as_it_was_made_is_leased_no_more(store: TensorStore) -> None:
    handle, other = publish(store, "a"), publish(store, "b")
    assert store.verify(key("a"), ONE)
    with store.reading(handle.lease_id, key("a"), ONE) as held:
        store.arena.view(held.start, 1)[:] = b"!"
        assert not store.verify(key("a"), ONE)
        assert store.lease(key("a"), ONE) is None
        assert used(store) == 2 * KIB  # somebody still reads it
        store.release([handle.lease_id])
        assert used(store) == 2 * KIB
    assert (used(store), store.leases) == (KIB, 1)
    assert store.verify(key("a"), ONE)
    assert store.release([other.lease_id]) == 1
    again = publish(store, "a")
    assert store.lease(key("a"), ONE) is not None
    assert again.checksum == handle.checksum


def test_two_that_verify_at_once_drop_it_once(store: TensorStore) -> None:
    handle = publish(store, "a")
    with store.reading(handle.lease_id, key("a"), ONE) as held:
        store.arena.view(held.start, 1)[:] = b"!"
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: store.verify(key("a"), ONE), range(8)))
    assert not all(found)
    store.release([handle.lease_id])
    assert (used(store), store.leases) == (0, 0)


def test_kv_goes_with_its_lease_and_embeddings_stay(store: TensorStore) -> None:
    kv, embedding = publish(store, "a", KV), publish(store, "b")
    assert store.release([kv.lease_id, embedding.lease_id, "unknown"]) == 2
    assert used(store) == KIB
    assert store.lease(key("b"), ONE) is not None
    assert store.lease(key("a"), ONE) is None


def test_without_a_cache_an_embedding_goes_with_its_last_lease(clock: Clock) -> None:
    store = new_store(clock, keeps=False)
    first, other = publish(store, "a"), publish(store, "b")
    second = store.lease(key("a"), ONE)
    assert second is not None
    store.release([first.lease_id])
    assert used(store) == 2 * KIB
    store.release([second.lease_id])
    assert used(store) == KIB
    assert store.lease(key("a"), ONE) is None
    clock.now += 31.0
    assert store.expire() == 1
    assert (used(store), store.lease(other.key, ONE)) == (0, None)
    assert store.stats().capacity_bytes == 0


def test_leases_end_by_their_time(store: TensorStore, clock: Clock) -> None:
    handle = publish(store, "a", KV)
    clock.now += 30.0
    with pytest.raises(LeaseExpired), store.reading(handle.lease_id, key("a"), ONE):
        pass
    assert (used(store), store.leases) == (KIB, 1)
    assert store.expire() == 1
    assert (used(store), store.leases) == (0, 0)


def test_a_tensor_that_is_read_outlives_its_lease(store: TensorStore, clock: Clock) -> None:
    handle = publish(store, "a", KV)
    with store.reading(handle.lease_id, key("a"), ONE) as held:
        clock.now += 31.0
        store.expire()
        assert store.arena.view(held.start, 3).tobytes() == b"aaa"
        assert (used(store), store.leases) == (KIB, 1)
    assert (used(store), store.leases) == (0, 0)


def test_a_lease_is_extended_for_a_reader_that_says_nothing(
    store: TensorStore, clock: Clock
) -> None:
    handle = publish(store, "a", KV)
    clock.now += 29.0
    store.extend(handle.lease_id, key("a"), ONE, 50.0)
    clock.now += 49.0
    assert store.expire() == 0
    clock.now += 1.0
    assert store.expire() == 1


def test_another_key_or_fingerprint_is_refused(store: TensorStore) -> None:
    handle = publish(store, "a")
    with pytest.raises(LeaseExpired), store.reading(handle.lease_id, key("b"), ONE):
        pass
    with pytest.raises(FingerprintMismatch), store.reading(handle.lease_id, key("a"), TWO):
        pass
    with pytest.raises(LeaseExpired):
        store.extend("unknown", key("a"), ONE, 1.0)
    assert store.leases == 1


def test_room_is_made_by_the_embedding_that_was_not_used_for_longest(store: TensorStore) -> None:
    store.release([publish(store, name).lease_id for name in "abcd"])
    store.release([store.lease(key("a"), ONE).lease_id])
    publish(store, "e", size=2 * KIB)
    assert [store.lease(key(name), ONE) is not None for name in "abcd"] == [
        True,
        False,
        False,
        True,
    ]
    assert store.stats().evictions == 2


def test_leased_tensors_are_never_evicted(store: TensorStore) -> None:
    handles = [publish(store, name) for name in "abc"] + [publish(store, "d", KV)]
    with pytest.raises(Overloaded, match="retry") as caught:
        publish(store, "e")
    assert caught.value.retry_after > 0
    for handle in handles:
        with store.reading(handle.lease_id, handle.key, ONE) as held:
            content = store.arena.view(held.start, held.size_bytes)
            assert checksum(content) == handle.checksum
    assert used(store) == 4 * KIB


def test_overdue_leases_make_room_at_once(store: TensorStore, clock: Clock) -> None:
    for name in "abcd":
        publish(store, name, KV)
    clock.now += 30.0
    publish(store, "e", KV)
    assert used(store) == KIB


def test_a_tensor_larger_than_the_arena_is_too_large(store: TensorStore) -> None:
    with pytest.raises(TooLarge, match="cache_bytes"):
        publish(store, "a", size=4 * KIB + 1)
    publish(store, "a", size=4 * KIB)


def test_an_arena_without_bytes_holds_nothing(clock: Clock) -> None:
    with pytest.raises(TooLarge):
        publish(new_store(clock, 0), "a", size=1)


def test_publishing_a_key_again_leases_what_is_there(store: TensorStore) -> None:
    first, second = publish(store, "a"), publish(store, "a")
    assert first.lease_id != second.lease_id
    assert (used(store), store.leases, len(store.holdings())) == (KIB, 2, 1)


def test_publishing_a_key_at_the_same_time_keeps_one(clock: Clock) -> None:
    store, together = new_store(clock, 64 * KIB), Barrier(4)

    def racing(_: int) -> Handle:
        together.wait()
        return publish(store, "a", size=8 * KIB)

    with ThreadPoolExecutor(4) as threads:
        handles = list(threads.map(racing, range(4)))
    assert (used(store), store.leases) == (8 * KIB, 4)
    store.release([handle.lease_id for handle in handles])
    assert (used(store), store.leases) == (8 * KIB, 0)


def test_kv_of_one_key_is_never_shared(store: TensorStore) -> None:
    first, _ = publish(store, "a", KV), publish(store, "a", KV)
    assert used(store) == 2 * KIB
    store.release([first.lease_id])
    assert used(store) == KIB


def test_dropping_others_frees_what_is_not_leased_and_the_rest_when_released(
    store: TensorStore,
) -> None:
    leased, kv = publish(store, "a"), publish(store, "k", KV)
    store.release([publish(store, "b").lease_id])
    publish(store, "c", of=TWO)
    assert store.drop_others(TWO) == (1, KIB)
    assert store.holdings() == [
        Holding("encoder", ONE, entries=1, bytes=KIB, leased_bytes=KIB),
        Holding("encoder", TWO, entries=1, bytes=KIB, leased_bytes=KIB),
    ]
    assert store.lease(key("a"), ONE) is None
    with store.reading(leased.lease_id, key("a"), ONE):
        pass
    store.release([leased.lease_id])
    assert [held.fingerprint for held in store.holdings()] == [TWO]
    with store.reading(kv.lease_id, key("k"), ONE):
        assert used(store) == 2 * KIB


def test_after_dropping_others_an_old_embedding_is_not_taken(store: TensorStore) -> None:
    store.drop_others(TWO)
    with pytest.raises(FingerprintMismatch):
        publish(store, "a")
    assert used(store) == 0
    publish(store, "a", of=TWO)


def test_an_embedding_that_was_being_copied_while_others_were_dropped_is_not_taken(
    store: TensorStore,
) -> None:
    class Late(torch.Tensor):
        """A tensor that is copied while the flush happens."""

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if function is torch.Tensor.copy_:
                store.drop_others(TWO)
            return super().__torch_function__(function, types, args, kwargs or {})

    with pytest.raises(FingerprintMismatch):
        store.publish(EMBEDDING, key("a"), ONE, torch.zeros(9).as_subclass(Late))
    assert used(store) == 0


def test_a_copy_that_fails_gives_its_room_back(store: TensorStore) -> None:
    meta = torch.zeros(KIB, dtype=torch.uint8, device="meta")
    with pytest.raises(NotImplementedError):
        store.publish(EMBEDDING, key("a"), ONE, meta)
    assert used(store) == 0


def test_hits_misses_and_seconds_saved_are_counted(store: TensorStore) -> None:
    tensor = torch.zeros(8)
    store.publish(EMBEDDING, key("a"), ONE, tensor, seconds=1.5)
    store.lease(key("a"), ONE), store.lease(key("a"), ONE), store.lease(key("b"), ONE)
    stats = store.stats()
    assert (stats.cache, stats.hits, stats.misses) == ("encoder", 2, 1)
    assert (stats.bytes, stats.capacity_bytes, stats.seconds_saved) == (32, 4 * KIB, 3.0)
