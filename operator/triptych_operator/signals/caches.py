"""How caches are used, summed over what pods told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triptych_contract.names import Cache, Metric

from triptych_operator.signals.history import History
from triptych_operator.signals.page import Series


@dataclass(frozen=True, slots=True)
class CacheUse:
    """One kind of cache over some pods; counts are since each of them began."""

    cache: Cache
    size_bytes: float = 0.0
    capacity_bytes: float = 0.0
    hits: float = 0.0
    misses: float = 0.0
    evictions: float = 0.0
    seconds_saved: float = 0.0


def cache_use(told: Sequence[History]) -> tuple[CacheUse, ...]:
    """The caches of the pods that ``told`` something, each over all of them."""
    found = (_of_pod(cache, history) for cache in Cache for history in told)
    return summed(one for one in found if one is not None)


def summed(uses: Iterable[CacheUse]) -> tuple[CacheUse, ...]:
    """One for each kind of cache among ``uses``, in the order of kinds."""
    totals: dict[Cache, CacheUse] = {}
    for one in uses:
        so_far = totals.get(one.cache, CacheUse(one.cache))
        totals[one.cache] = CacheUse(
            one.cache,
            so_far.size_bytes + one.size_bytes,
            so_far.capacity_bytes + one.capacity_bytes,
            so_far.hits + one.hits,
            so_far.misses + one.misses,
            so_far.evictions + one.evictions,
            so_far.seconds_saved + one.seconds_saved,
        )
    return tuple(totals[cache] for cache in Cache if cache in totals)


def _of_pod(cache: Cache, history: History) -> CacheUse | None:
    capacity = history.now(Series(Metric.CACHE_CAPACITY_BYTES, cache))
    if capacity is None:
        return None  # the pod has no such cache
    numbers = (
        history.now(Series(metric, cache)) or 0.0
        for metric in (
            Metric.CACHE_HITS,
            Metric.CACHE_MISSES,
            Metric.CACHE_EVICTIONS,
            Metric.CACHE_SECONDS_SAVED,
        )
    )
    size = history.now(Series(Metric.CACHE_BYTES, cache)) or 0.0
    return CacheUse(cache, size, capacity, *numbers)
