from __future__ import annotations

import pytest
from triptych_contract.names import Cache, Tier
from triptych_operator.api.status import CacheUseStatus
from triptych_operator.signals.board import TierSignals
from triptych_operator.signals.caches import CacheUse
from triptych_operator.status.caches import is_used, use_of


def use(name: Cache = Cache.ENCODER, **changes: object) -> CacheUseStatus:
    fields = {
        "bytes": 5000, "capacity": 10_000, "hits": 100, "misses": 50, "evictions": 0,
        "seconds_saved": "2.5",
    }  # fmt: skip
    return CacheUseStatus.model_validate({"name": name, **fields, **changes})


def test_each_kind_of_cache_is_told_once_in_three_digits() -> None:
    embedding = CacheUse(Cache.EMBEDDING, 123_456, 2**28, 98_765, 12, 0, 1.2345)
    encoders = TierSignals(Tier.ENCODER, 0.0, caches=(CacheUse(Cache.ENCODER, hits=1),))
    prefills = TierSignals(Tier.PREFILL, 0.0, caches=(embedding,))
    first, second = use_of([prefills, encoders])
    assert (first.name, first.hits, first.seconds_saved) == (Cache.ENCODER, 1, "0")
    assert second == CacheUseStatus(
        name=Cache.EMBEDDING,
        bytes=123_000,
        capacity=2**28,
        hits=98_800,
        misses=12,
        evictions=0,
        seconds_saved="1.23",
    )


@pytest.mark.parametrize(
    ("new", "news"),
    [
        ([use()], False),
        ([use(hits=110)], False),
        ([use(hits=111)], True),
        ([use(misses=56)], True),
        ([use(evictions=1)], True),
        ([use(bytes=4400)], True),
        ([use(seconds_saved="2.8")], True),
        ([use(capacity=10_001)], True),
        ([use(), use(Cache.EMBEDDING)], True),
        ([], True),
    ],
)
def test_only_much_use_is_news(new: list[CacheUseStatus], news: bool) -> None:
    assert is_used(new, [use()]) is news
