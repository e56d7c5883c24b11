"""How caches are used, read from real pages."""

from __future__ import annotations

from signals.page_servers import worker_page
from triptych_contract.names import Cache
from triptych_operator.signals.caches import CacheUse, cache_use, summed
from triptych_operator.signals.history import History
from triptych_operator.signals.page import read_page
from triptych_worker.domain import CacheStats

EMBEDDING = CacheStats(Cache.EMBEDDING, 3, 2, 1, 400, 1000, 1.5)
PREFIX = CacheStats(Cache.KV_PREFIX, 30, 20, 0, 0, 0, 0.25)


def told(*caches: CacheStats) -> History:
    """A pod that has shown its page once."""
    history = History(window=30.0)
    history.add(read_page(worker_page(caches=caches), at=0.0))
    return history


def test_the_caches_of_all_pods_are_summed_by_kind() -> None:
    assert cache_use([told(EMBEDDING, PREFIX), told(EMBEDDING)]) == (
        CacheUse(Cache.EMBEDDING, 800, 2000, 6, 4, 2, 3.0),
        CacheUse(Cache.KV_PREFIX, 0, 0, 30, 20, 0, 0.25),
    )


def test_pods_without_caches_have_none() -> None:
    assert cache_use([told(), History(window=30.0)]) == ()


def test_a_kind_that_two_tiers_have_is_one() -> None:
    parts = [CacheUse(Cache.ENCODER, hits=1), CacheUse(Cache.PROCESSOR), CacheUse(Cache.ENCODER)]
    assert summed(parts) == (CacheUse(Cache.PROCESSOR), CacheUse(Cache.ENCODER, hits=1))
