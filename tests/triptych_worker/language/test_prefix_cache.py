from __future__ import annotations

import pytest
import torch
from triptych_contract.fingerprints import KEY_BYTES, NO_TENANT
from triptych_worker.domain import Holding, Prompt
from triptych_worker.language.layout import KvLayout
from triptych_worker.language.pool import KvPool
from triptych_worker.language.prefix_cache import Prefix, PrefixCache
from triptych_worker.language.prefixes import BLOCK_TOKENS, Block

pytestmark = pytest.mark.torch

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=4, dtype=torch.float32)
BLOCK_BYTES = BLOCK_TOKENS * LAYOUT.bytes_per_token
OLD, NEW = "aa" * 32, "bb" * 32


def blocks(names: str, fingerprint: str = "") -> list[Block]:
    """One block per letter; equal letters are equal blocks."""
    return [Block(name.encode() * KEY_BYTES, fingerprint) for name in names]


@pytest.fixture
def pool() -> KvPool:
    pool = KvPool(LAYOUT, 64 * BLOCK_TOKENS, torch.device("cpu"))
    pool.tensor.copy_(torch.rand(pool.tensor.shape))
    return pool


def prompt(tokens: int) -> Prompt:
    return Prompt(tuple(range(tokens)))


def names(cache: PrefixCache, of: str, fingerprint: str = "") -> str:
    """Which of these blocks a prompt that begins with them finds."""
    held = cache.find(blocks(of, fingerprint))
    cache.release(held)
    return "".join(each.block.key[:1].decode() for each in held)


def test_what_was_kept_is_found_as_far_as_it_is_the_same(pool: KvPool) -> None:
    cache = PrefixCache(LAYOUT, 8 * BLOCK_BYTES)
    cache.keep(blocks("abc"), pool, 0, 0.0)
    assert [names(cache, of) for of in ("abc", "abd", "ab", "xbc", "")] == [
        "abc", "ab", "ab", "", "",
    ]  # fmt: skip


def test_a_block_is_a_copy_of_its_place_in_the_pool(pool: KvPool) -> None:
    cache = PrefixCache(LAYOUT, 8 * BLOCK_BYTES)
    cache.keep(blocks("ab"), pool, 7, 0.0)
    expected = pool.heads(7, 2 * BLOCK_TOKENS).clone()
    pool.tensor.zero_()
    held = cache.find(blocks("ab"))
    assert torch.equal(torch.cat([each.kv for each in held], dim=3), expected)
    cache.release(held)


def test_the_end_of_what_was_not_used_for_longest_goes_first(pool: KvPool) -> None:
    cache = PrefixCache(LAYOUT, 4 * BLOCK_BYTES)
    cache.keep(blocks("ab"), pool, 0, 0.0)
    cache.keep(blocks("xy"), pool, 0, 0.0)
    assert names(cache, "ab") == "ab"  # x and y are the older ones now
    cache.keep(blocks("abc"), pool, 0, 0.0)
    assert (names(cache, "xy"), names(cache, "abc")) == ("x", "abc")
    assert cache.stats().evictions == 1


def test_of_a_prompt_that_is_larger_than_the_cache_the_beginning_is_kept(pool: KvPool) -> None:
    cache = PrefixCache(LAYOUT, 3 * BLOCK_BYTES + 1)
    cache.keep(blocks("abcdef"), pool, 0, 0.0)
    assert names(cache, "abcdef") == "abc"
    assert cache.stats().bytes == 3 * BLOCK_BYTES
    cache.check_integrity()


def test_what_is_about_to_be_copied_makes_no_room(pool: KvPool) -> None:
    cache = PrefixCache(LAYOUT, 2 * BLOCK_BYTES)
    cache.keep(blocks("ab"), pool, 0, 0.0)
    held = cache.find(blocks("ab"))
    cache.keep(blocks("xy"), pool, 0, 0.0)
    cache.check_integrity()
    assert names(cache, "xy") == ""
    cache.release(held)
    cache.keep(blocks("xy"), pool, 0, 0.0)
    assert names(cache, "xy") == "xy"
    assert names(cache, "ab") == ""


def test_a_block_that_two_are_about_to_copy_stays_until_both_have(pool: KvPool) -> None:
    cache = PrefixCache(LAYOUT, BLOCK_BYTES)
    cache.keep(blocks("a"), pool, 0, 0.0)
    first, second = cache.find(blocks("a")), cache.find(blocks("a"))
    cache.release(first)
    cache.keep(blocks("b"), pool, 0, 0.0)
    assert names(cache, "a") == "a"
    cache.release(second)
    cache.keep(blocks("b"), pool, 0, 0.0)
    assert names(cache, "b") == "b"


def test_a_stale_block_in_use_goes_when_it_is_released(pool: KvPool) -> None:
    cache = PrefixCache(LAYOUT, 8 * BLOCK_BYTES)
    cache.keep([*blocks("t"), *blocks("ab", OLD)], pool, 0, 0.0)
    cache.keep([*blocks("t"), *blocks("c", OLD)], pool, 0, 0.0)
    held = cache.find([*blocks("t"), *blocks("ab", OLD)])
    assert cache.drop_others(NEW) == (1, BLOCK_BYTES)
    assert cache.find(blocks("x") + blocks("ab", OLD)) == ()
    text_only = cache.find([*blocks("t"), *blocks("ab", OLD)])
    assert [each.block.fingerprint for each in text_only] == [""]
    cache.release(text_only)
    assert cache.holdings() == [
        Holding("kv_prefix", "", 1, BLOCK_BYTES, BLOCK_BYTES),
        Holding("kv_prefix", OLD, 2, 2 * BLOCK_BYTES, 2 * BLOCK_BYTES),
    ]
    cache.release(held)
    assert cache.holdings() == [Holding("kv_prefix", "", 1, BLOCK_BYTES, 0)]
    cache.keep([*blocks("t"), *blocks("ab", OLD)], pool, 0, 0.0)
    cache.keep([*blocks("t"), *blocks("d", NEW)], pool, 0, 0.0)
    assert [held.fingerprint for held in cache.holdings()] == ["", NEW]
    cache.check_integrity()


def test_every_block_counts_as_a_look_up(pool: KvPool) -> None:
    cache = PrefixCache(LAYOUT, 8 * BLOCK_BYTES)
    first = Prefix(cache, prompt(3 * BLOCK_TOKENS + 1), NO_TENANT)
    first.load(pool, 0)
    first.keep(pool, 0, (), 0.5)
    Prefix(cache, prompt(4 * BLOCK_TOKENS), NO_TENANT).load(pool, 0)
    Prefix(cache, prompt(5 * BLOCK_TOKENS), NO_TENANT).load(pool, 0)
    stats = cache.stats()
    assert (stats.hits, stats.misses) == (3 + 3, 3 + 0 + 1)
    assert stats.seconds_saved == stats.hits * BLOCK_TOKENS * 0.5
    assert (stats.cache, stats.capacity_bytes) == ("kv_prefix", 8 * BLOCK_BYTES)


def test_what_is_found_after_all_was_no_miss(pool: KvPool) -> None:
    cache = PrefixCache(LAYOUT, 8 * BLOCK_BYTES)
    prefix = Prefix(cache, prompt(3 * BLOCK_TOKENS + 1), NO_TENANT)
    assert prefix.look_again() == 0
    Prefix(cache, prompt(2 * BLOCK_TOKENS), NO_TENANT).keep(pool, 0, (), 0.0)
    assert prefix.look_again() == prefix.look_again() == 2 * BLOCK_TOKENS
    expected = pool.heads(0, 2 * BLOCK_TOKENS).clone()
    prefix.load(pool, 9)
    assert (cache.stats().hits, cache.stats().misses) == (2, 1)
    assert torch.equal(pool.heads(9, 2 * BLOCK_TOKENS), expected)
    assert cache.holdings()[0].leased_bytes == 0
    assert prefix.tokens == 2 * BLOCK_TOKENS


def test_without_capacity_nothing_is_kept(pool: KvPool) -> None:
    cache = PrefixCache(LAYOUT, 0)
    cache.keep(blocks("ab"), pool, 0, 0.0)
    assert names(cache, "ab") == ""
    assert cache.stats().bytes == 0
