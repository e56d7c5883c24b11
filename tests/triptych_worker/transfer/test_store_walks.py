"""Any sequence of operations, alone and from several threads, leaves the books right."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transfer.stores import EMBEDDING, KIB, KV, ONE, TWO, Clock, key, new_store, publish, used
from triptych_contract.errors import (
    FingerprintMismatch,
    Overloaded,
)
from triptych_worker.domain import Handle, HandleKind
from triptych_worker.transfer.layout import checksum
from triptych_worker.transfer.store import TensorStore

pytestmark = pytest.mark.torch

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["embedding", "kv", "lease", "release", "wait", "drop"]),
        st.sampled_from("abcdefgh"),
        st.integers(0, 3 * KIB),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_no_sequence_loses_a_leased_byte_or_passes_the_bound(
    steps: list[tuple[str, str, int]],
) -> None:
    clock = Clock()
    store = new_store(clock, 8 * KIB)
    handles: list[Handle] = []
    for action, name, number in steps:
        of = TWO if number % 2 else ONE
        try:
            if action in ("embedding", "kv"):
                handles.append(publish(store, name, HandleKind(action), of=of, size=number))
            elif action == "lease" and (found := store.lease(key(name), of)):
                handles.append(found)
            elif action == "release" and handles:
                store.release([handles.pop(number % len(handles)).lease_id])
            elif action == "wait":
                clock.now += 31.0
                store.expire()
                handles.clear()
            elif action == "drop":
                store.drop_others(of)
        except (Overloaded, FingerprintMismatch):
            pass
        assert used(store) <= 8 * KIB
        assert store.leases == len(handles)
        assert all(intact(store, handle) for handle in handles)


def intact(store: TensorStore, handle: Handle) -> bool:
    with store.reading(handle.lease_id, handle.key, handle.fingerprint) as held:
        return checksum(store.arena.view(held.start, held.size_bytes)) == handle.checksum


def test_a_thousand_operations_from_several_threads_leave_the_books_right() -> None:
    store = new_store(Clock(), 16 * KIB)

    def work(seed: int) -> None:
        chance, handles = random.Random(seed), list[Handle]()
        for _ in range(250):
            name = chance.choice("abcdefgh")
            try:
                if chance.random() < 0.4:
                    kind = chance.choice([EMBEDDING, KV])
                    handles.append(publish(store, name, kind, size=chance.randrange(4 * KIB)))
                elif chance.random() < 0.5 and (found := store.lease(key(name), ONE)):
                    handles.append(found)
                elif handles:
                    assert intact(store, handles[-1])
                    store.release([handles.pop(chance.randrange(len(handles))).lease_id])
            except Overloaded:
                store.release([handle.lease_id for handle in handles])
                handles.clear()
            store.check_integrity()
        store.release([handle.lease_id for handle in handles])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert store.leases == 0
    assert used(store) <= 16 * KIB
    store.drop_others(TWO)
    assert used(store) == 0
