"""Processed pictures by fingerprint and key of their embedding, least recently used first to go.

Pure: bounded in bytes, no clock. Layouts are a thousandth of the tensors' size, so they are kept
apart and longer: with the encoder's own cache warm, a layout is all that a prompt needs.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from triptych_gateway.processors.pictures import Layout, Processed

_MAX_LAYOUTS: Final = 65536
Key = tuple[str, bytes]  # fingerprint, ``embedding_key`` (which is of one tenant)


@dataclass(frozen=True, slots=True)
class Held:
    """What the cache holds of one fingerprint."""

    fingerprint: str
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A processed picture and what making it took, in seconds."""

    processed: Processed
    seconds: float


class ProcessorCache:
    """A least-recently-used cache of at most ``capacity`` bytes of tensors."""

    def __init__(self, capacity: int) -> None:
        self.capacity: Final = capacity
        self.hits = 0
        self.misses = 0
        self.evictions = 0
        self.seconds_saved = 0.0
        self.size_bytes = 0
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._layouts: OrderedDict[Key, Layout] = OrderedDict()
        self._only: str | None = None

    def get(self, key: Key) -> Processed | None:
        """The tensors and layout behind ``key``, now the most recently used."""
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self._entries.move_to_end(key)
        self.hits += 1
        self.seconds_saved += entry.seconds
        return entry.processed

    def layout(self, key: Key) -> Layout | None:
        """The layout behind ``key``, even if its tensors are gone."""
        layout = self._layouts.get(key)
        if layout is not None:
            self._layouts.move_to_end(key)
        return layout

    def put(self, key: Key, processed: Processed, seconds: float) -> None:
        """Keeps ``processed``, unless it alone exceeds the bound or its fingerprint was dropped."""
        if self._only is not None and key[0] != self._only:
            return
        self._layouts[key] = processed.layout
        self._layouts.move_to_end(key)
        if len(self._layouts) > _MAX_LAYOUTS:
            self._layouts.popitem(last=False)
        if processed.size_bytes > self.capacity:
            return
        self._remove(key)
        self._entries[key] = Entry(processed, seconds)
        self.size_bytes += processed.size_bytes
        while self.size_bytes > self.capacity:
            self._remove(next(iter(self._entries)))
            self.evictions += 1

    def holdings(self) -> tuple[Held, ...]:
        """What is held, by fingerprint."""
        sizes: dict[str, list[int]] = {}
        for (fingerprint, _), entry in self._entries.items():
            sizes.setdefault(fingerprint, []).append(entry.processed.size_bytes)
        for fingerprint, _ in self._layouts:
            sizes.setdefault(fingerprint, [])
        return tuple(Held(name, len(found), sum(found)) for name, found in sorted(sizes.items()))

    def drop_others(self, keep: str) -> tuple[int, int]:
        """Forgets every other fingerprint, now and from now on; entries and bytes that went."""
        self._only = keep
        for key in [key for key in self._layouts if key[0] != keep]:
            del self._layouts[key]
        gone = [key for key in self._entries if key[0] != keep]
        before = self.size_bytes
        for key in gone:
            self._remove(key)
        return len(gone), before - self.size_bytes

    def check(self) -> None:
        """Raises AssertionError if the books do not balance; for tests and idle moments."""
        held = sum(entry.processed.size_bytes for entry in self._entries.values())
        if held != self.size_bytes or held > self.capacity:
            raise AssertionError(f"{held} bytes held, {self.size_bytes} in the books")

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry.processed.size_bytes
