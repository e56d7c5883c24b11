"""What the status says of how caches are used. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from triptych_operator.api.status import CacheUseStatus
from triptych_operator.signals.board import TierSignals
from triptych_operator.signals.caches import CacheUse, summed
from triptych_operator.status.rounding import MATERIAL, coarse, rounded


def use_of(signals: Iterable[TierSignals]) -> tuple[CacheUseStatus, ...]:
    """The caches of all tiers, each kind summed over its pods."""
    return tuple(map(_told, summed(use for tier in signals for use in tier.caches)))


def is_used(new: Sequence[CacheUseStatus], old: Sequence[CacheUseStatus]) -> bool:
    """Whether caches have come, gone, changed their size or been used by much since ``old``."""
    return _outline(new) != _outline(old) or any(
        abs(now - before) > MATERIAL * before
        for one, other in zip(new, old, strict=True)
        for now, before in zip(_counts(one), _counts(other), strict=True)
    )


def _told(use: CacheUse) -> CacheUseStatus:
    return CacheUseStatus(
        name=use.cache,
        bytes=round(coarse(use.size_bytes)),
        capacity=round(use.capacity_bytes),
        hits=round(coarse(use.hits)),
        misses=round(coarse(use.misses)),
        evictions=round(coarse(use.evictions)),
        seconds_saved=rounded(use.seconds_saved),
    )


def _outline(uses: Sequence[CacheUseStatus]) -> list[object]:
    return [(one.name, one.capacity) for one in uses]


def _counts(use: CacheUseStatus) -> tuple[float, ...]:
    return use.bytes, use.hits, use.misses, use.evictions, float(use.seconds_saved)
