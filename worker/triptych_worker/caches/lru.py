"""A least-recently-used cache bounded in bytes, whose entries carry the fingerprint they hang on.

Not thread-safe; its owner guards it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from triptych_worker.domain import CacheStats, Holding

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[V]):
    value: V
    fingerprint: str
    size_bytes: int
    seconds: float  # what making it took


def _never_pinned(_: object) -> bool:
    return False


class ByteLru(Generic[K, V]):
    """Keeps what was used last, within ``capacity_bytes``; a capacity of 0 keeps nothing.

    Entries for whose value ``pinned`` is true are never evicted or dropped. An empty fingerprint
    hangs on no encoder: it is never dropped. ``get``, ``touch``, ``put``, ``evict``, ``remove`` and
    ``drop_others`` mutate; everything else only looks.
    """

    def __init__(
        self, name: str, capacity_bytes: int, pinned: Callable[[V], bool] = _never_pinned
    ) -> None:
        if capacity_bytes < 0:
            raise ValueError(f"capacity must not be negative, got {capacity_bytes}")
        self.name = name
        self.capacity_bytes = capacity_bytes
        self.bytes = 0
        self._pinned = pinned
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()  # oldest use first
        self._keep = ""  # after drop_others: the only fingerprint that may come in
        self._hits = self._misses = self._evictions = 0
        self._seconds_saved = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def admits(self, fingerprint: str) -> bool:
        """Whether an entry of ``fingerprint`` may come in: not after others were dropped."""
        return not self._keep or fingerprint in ("", self._keep)

    def values(self) -> list[V]:
        """All values, oldest use first."""
        return [entry.value for entry in self._entries.values()]

    def peek(self, key: K) -> V | None:
        """The value, without counting or touching."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def get(self, key: K) -> V | None:
        """The value, now the most recently used; counts a hit or a miss."""
        entry = self._entries.get(key)
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        self._seconds_saved += entry.seconds
        self._entries.move_to_end(key)
        return entry.value

    def touch(self, key: K) -> None:
        """Makes an entry the most recently used, and counts nothing.

        Raises:
            KeyError: there is none.
        """
        self._entries.move_to_end(key)

    def put(
        self, key: K, value: V, *, fingerprint: str, size_bytes: int, seconds: float = 0.0
    ) -> bool:
        """Keeps ``value``, evicting what was not used for longest.

        Args:
            key: replaces the entry of an equal key.
            value: handed out as it is, never copied.
            fingerprint: what the entry hangs on.
            size_bytes: what it counts for.
            seconds: what making it took, saved by every hit.

        Returns:
            False, and nothing changed, when it cannot be kept: too large beside what is pinned, an
            equal key that is pinned, or a fingerprint that was dropped.
        """
        old = self._entries.get(key)
        if not self.admits(fingerprint) or (old and self._pinned(old.value)):
            return False
        surplus = self.bytes - (old.size_bytes if old else 0) + size_bytes - self.capacity_bytes
        victims = self._oldest(surplus, besides=key)
        if victims is None:
            return False
        if old:
            self.remove(key)
        for victim in victims:
            self.remove(victim)
        self._evictions += len(victims)
        self._entries[key] = _Entry(value, fingerprint, size_bytes, seconds)
        self.bytes += size_bytes
        return True

    def evict(self) -> V | None:
        """Takes the entry out that was not used for longest and is not pinned, if there is one."""
        for key, entry in self._entries.items():
            if not self._pinned(entry.value):
                self._evictions += 1
                return self.remove(key)
        return None

    def remove(self, key: K) -> V:
        """Takes one entry out, pinned or not; no eviction is counted.

        Raises:
            KeyError: there is none.
        """
        entry = self._entries.pop(key)
        self.bytes -= entry.size_bytes
        return entry.value

    def drop_others(self, keep: str) -> list[V]:
        """Takes out what hangs on another fingerprint than ``keep`` and is not pinned.

        From now on only ``keep`` comes in. Call it again when a pin has ended.
        """
        self._keep = keep
        stale = [
            key
            for key, entry in self._entries.items()
            if not self.admits(entry.fingerprint) and not self._pinned(entry.value)
        ]
        return [self.remove(key) for key in stale]

    def holdings(self) -> list[Holding]:
        """What is held, one row per fingerprint."""
        return [
            Holding(
                cache=self.name,
                fingerprint=fingerprint,
                entries=sum(1 for _ in self._of(fingerprint)),
                bytes=sum(entry.size_bytes for entry in self._of(fingerprint)),
                leased_bytes=sum(
                    entry.size_bytes for entry in self._leased() if entry.fingerprint == fingerprint
                ),
            )
            for fingerprint in sorted({entry.fingerprint for entry in self._entries.values()})
        ]

    def stats(self) -> CacheStats:
        """Totals since the start, and what is held now."""
        return CacheStats(
            cache=self.name,
            hits=self._hits,
            misses=self._misses,
            evictions=self._evictions,
            bytes=self.bytes,
            capacity_bytes=self.capacity_bytes,
            seconds_saved=self._seconds_saved,
        )

    def check_integrity(self) -> None:
        """Adds everything up.

        Raises:
            RuntimeError: the account is wrong or over capacity.
        """
        total = sum(entry.size_bytes for entry in self._entries.values())
        if total != self.bytes or total > self.capacity_bytes:
            raise RuntimeError(
                f"cache {self.name} holds {total} bytes, counts {self.bytes} of "
                f"{self.capacity_bytes}"
            )

    def _oldest(self, surplus: int, besides: K) -> list[K] | None:
        """Keys whose entries free ``surplus`` bytes, oldest use first; None if too few can go."""
        victims: list[K] = []
        for key, entry in self._entries.items():
            if surplus <= 0:
                break
            if key != besides and not self._pinned(entry.value):
                victims.append(key)
                surplus -= entry.size_bytes
        return victims if surplus <= 0 else None

    def _leased(self) -> list[_Entry[V]]:
        return [entry for entry in self._entries.values() if self._pinned(entry.value)]

    def _of(self, fingerprint: str) -> list[_Entry[V]]:
        return [entry for entry in self._entries.values() if entry.fingerprint == fingerprint]
