from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_worker.caches.lru import ByteLru
from triptych_worker.domain import CacheStats, Holding


def cache(capacity: int = 10, pinned: set[str] | None = None) -> ByteLru[str, str]:
    held = pinned if pinned is not None else set()
    return ByteLru("encoder", capacity, pinned=lambda value: value in held)


def keep(lru: ByteLru[str, str], names: str, size: int = 4, fingerprint: str = "f1") -> list[bool]:
    return [lru.put(name, name, fingerprint=fingerprint, size_bytes=size) for name in names]


def test_what_was_used_last_stays() -> None:
    lru = cache()
    keep(lru, "ab")
    assert lru.get("a") == "a"
    keep(lru, "c")
    assert ("a" in lru, "b" in lru, "c" in lru) == (True, False, True)


def test_hits_misses_evictions_and_seconds_are_counted() -> None:
    lru = cache()
    lru.put("a", "a", fingerprint="f1", size_bytes=6, seconds=1.5)
    lru.get("a"), lru.get("a"), lru.get("b")
    keep(lru, "c", size=5)
    assert lru.stats() == CacheStats(
        cache="encoder",
        hits=2,
        misses=1,
        evictions=1,
        bytes=5,
        capacity_bytes=10,
        seconds_saved=3.0,
    )


def test_looking_counts_and_touches_nothing() -> None:
    lru = cache()
    keep(lru, "ab")
    assert (lru.peek("a"), lru.peek("z"), "a" in lru) == ("a", None, True)
    assert (lru.stats().hits, lru.stats().misses) == (0, 0)
    keep(lru, "c")
    assert "a" not in lru


def test_a_capacity_of_zero_keeps_nothing() -> None:
    lru = cache(capacity=0)
    assert keep(lru, "a", size=1) == [False]
    assert lru.get("a") is None
    assert (len(lru), lru.bytes) == (0, 0)


def test_a_negative_capacity_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        cache(capacity=-1)


def test_what_is_too_large_evicts_nothing() -> None:
    lru = cache()
    keep(lru, "ab")
    assert keep(lru, "c", size=11) == [False]
    assert (len(lru), lru.bytes, lru.stats().evictions) == (2, 8, 0)


def test_pinned_entries_are_passed_over() -> None:
    lru = cache(pinned={"a"})
    keep(lru, "abc")
    assert ("a" in lru, "b" in lru, "c" in lru) == (True, False, True)


def test_what_does_not_fit_beside_pinned_entries_evicts_nothing() -> None:
    lru = cache(pinned={"a"})
    keep(lru, "ab")
    assert keep(lru, "c", size=7) == [False]
    assert (len(lru), lru.bytes) == (2, 8)


def test_an_equal_key_replaces_and_its_size_is_exchanged() -> None:
    lru = cache()
    keep(lru, "ab")
    assert keep(lru, "a", size=6) == [True]
    assert (lru.bytes, "b" in lru, lru.stats().evictions) == (10, True, 0)


def test_a_pinned_entry_is_not_replaced() -> None:
    lru = cache(pinned={"a"})
    keep(lru, "a")
    assert keep(lru, "a", size=2) == [False]
    assert lru.bytes == 4


def test_evicting_takes_the_oldest_that_may_go() -> None:
    pinned = {"a"}
    lru = cache(pinned=pinned)
    keep(lru, "ab")
    assert [lru.evict(), lru.evict()] == ["b", None]
    pinned.clear()
    assert lru.evict() == "a"
    assert lru.stats().evictions == 2


def test_dropping_others_keeps_the_one_and_what_is_pinned() -> None:
    pinned = {"b"}
    lru = cache(capacity=20, pinned=pinned)
    keep(lru, "ab")
    keep(lru, "c", fingerprint="f2")
    assert lru.drop_others("f2") == ["a"]
    assert lru.holdings() == [
        Holding(cache="encoder", fingerprint="f1", entries=1, bytes=4, leased_bytes=4),
        Holding(cache="encoder", fingerprint="f2", entries=1, bytes=4, leased_bytes=0),
    ]
    pinned.clear()
    assert lru.drop_others("f2") == ["b"]
    assert [held.fingerprint for held in lru.holdings()] == ["f2"]


def test_after_dropping_others_only_the_kept_fingerprint_comes_in() -> None:
    lru = cache()
    lru.drop_others("f2")
    assert keep(lru, "a", fingerprint="f1") == [False]
    assert keep(lru, "b", fingerprint="f2") == [True]
    assert (lru.admits("f1"), lru.admits("f2")) == (False, True)
    lru.drop_others("f1")
    assert (lru.admits("f1"), len(lru)) == (True, 0)


def test_what_hangs_on_no_encoder_is_never_dropped() -> None:
    lru = cache()
    keep(lru, "a", fingerprint="")
    keep(lru, "b", fingerprint="f1")
    assert lru.drop_others("f2") == ["b"]
    assert keep(lru, "c", fingerprint="") == [True]
    assert lru.admits("")


def test_touching_keeps_an_entry_and_counts_nothing() -> None:
    lru = cache()
    keep(lru, "ab")
    lru.touch("a")
    keep(lru, "c")
    assert ("a" in lru, "b" in lru) == (True, False)
    assert (lru.stats().hits, lru.stats().misses) == (0, 0)
    with pytest.raises(KeyError):
        lru.touch("b")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "get", "pin", "unpin", "evict", "drop"]),
        st.sampled_from("abcdef"),
        st.integers(0, 8),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_no_sequence_breaks_the_bound_or_takes_a_pinned_entry(
    steps: list[tuple[str, str, int]],
) -> None:
    pinned: set[str] = set()
    lru = cache(capacity=16, pinned=pinned)
    for action, name, number in steps:
        fingerprint = f"f{number % 2}"
        held = {value for value in pinned if value in lru}
        if action == "put":
            lru.put(name, name, fingerprint=fingerprint, size_bytes=number)
        elif action == "get":
            assert lru.get(name) in (name, None)
        elif action == "pin" and name in lru:
            pinned.add(name)
        elif action == "unpin":
            pinned.discard(name)
        elif action == "evict":
            lru.evict()
        elif action == "drop":
            lru.drop_others(fingerprint)
        assert all(value in lru for value in held & pinned)
        assert sum(held.bytes for held in lru.holdings()) == lru.bytes <= 16
        lru.check_integrity()


def test_a_damaged_account_is_found() -> None:
    lru = cache()
    keep(lru, "a")
    lru.bytes = 3
    with pytest.raises(RuntimeError, match="counts 3"):
        lru.check_integrity()
