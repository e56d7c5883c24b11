"""Who holds which entry until when.

Not thread-safe; its owner guards it and passes the time in, on one monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

E = TypeVar("E", bound=Hashable)


@dataclass(frozen=True, slots=True)
class _Lease(Generic[E]):
    entry: E
    expires: float


class LeaseBook(Generic[E]):
    """Leases by id. An entry is pinned while at least one lease on it stands.

    A lease whose time is over no longer opens its entry, but pins it until ``expire`` is told the
    time, so that only one place frees memory.
    """

    def __init__(self) -> None:
        self._leases: dict[str, _Lease[E]] = {}
        self._pins: Counter[E] = Counter()

    def __len__(self) -> int:
        return len(self._leases)

    def pinned(self, entry: E) -> bool:
        """Whether a lease on ``entry`` stands."""
        return entry in self._pins

    def find(self, lease_id: str, now: float) -> E | None:
        """The entry that ``lease_id`` opens, or None when it is unknown or over."""
        lease = self._leases.get(lease_id)
        return lease.entry if lease and now < lease.expires else None

    def grant(self, lease_id: str, entry: E, expires: float) -> None:
        """Pins ``entry`` until ``expires``.

        Raises:
            ValueError: the id is taken.
        """
        if lease_id in self._leases:
            raise ValueError(f"lease {lease_id} stands already")
        self._leases[lease_id] = _Lease(entry, expires)
        self._pins[entry] += 1

    def extend(self, lease_id: str, expires: float) -> None:
        """Lets a lease stand until ``expires`` at least.

        Raises:
            KeyError: there is no such lease.
        """
        lease = self._leases[lease_id]
        self._leases[lease_id] = _Lease(lease.entry, max(lease.expires, expires))

    def release(self, lease_id: str) -> E | None:
        """Ends a lease. The entry it was on, or None when it was unknown or over already."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return None
        self._pins[lease.entry] -= 1
        if not self._pins[lease.entry]:
            del self._pins[lease.entry]
        return lease.entry

    def expire(self, now: float) -> list[E]:
        """Ends every lease whose time is over; the entries they were on."""
        over = [lease_id for lease_id, lease in self._leases.items() if lease.expires <= now]
        ended = (self.release(lease_id) for lease_id in over)
        return [entry for entry in ended if entry is not None]

    def check_integrity(self) -> None:
        """Counts the pins again.

        Raises:
            RuntimeError: they differ.
        """
        if Counter(lease.entry for lease in self._leases.values()) != self._pins:
            raise RuntimeError("pins do not match the leases")
