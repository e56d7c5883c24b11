"""Tensors that peers may read, in one arena, pinned by leases.

Embeddings stay as a cache when their leases have ended, and go when room is needed, least recently
used first; where there is to be no cache, they go with their last lease. KV goes with its lease.
A tensor that is being written or read is leased as well, so nothing that anyone looks at is ever
freed.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import torch
from triptych_contract.errors import FingerprintMismatch, LeaseExpired, Overloaded, TooLarge
from triptych_contract.names import Cache

from triptych_worker.caches.leases import LeaseBook
from triptych_worker.caches.lru import ByteLru
from triptych_worker.domain import CacheStats, Handle, HandleKind, Holding
from triptych_worker.transfer.arena import Arena
from triptych_worker.transfer.layout import checksum, dtype_name

_RETRY_AFTER: Final = 0.5  # seconds; leases come and go many times a second


@dataclass(frozen=True, slots=True)
class Origin:
    """What handles say about the process that holds them."""

    source: str  # host:port that peers reach its Transfer service at
    instance: str
    transports: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """One tensor in the arena; ``size_bytes`` from ``start`` on."""

    kind: HandleKind
    key: bytes
    fingerprint: str
    shape: tuple[int, ...]
    dtype: str
    start: int
    size_bytes: int
    checksum: bytes


class TensorStore:
    """Implements ``domain.TensorHolder``. Any thread may call any method.

    One lock guards the books; bytes are copied and hashed outside of it.
    """

    def __init__(
        self,
        arena: Arena,
        origin: Origin,
        *,
        lease_seconds: float,
        keeps_embeddings: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.arena = arena
        self._keeps_embeddings = keeps_embeddings
        self._origin = origin
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._leases: LeaseBook[Held] = LeaseBook()
        self._embeddings: ByteLru[tuple[bytes, str], Held] = ByteLru(
            Cache.ENCODER, arena.size_bytes, pinned=self._leases.pinned
        )
        self._kv: set[Held] = set()
        self._writing: set[int] = set()  # starts of ranges being written
        self._condemned: set[Held] = set()  # embeddings with wrong bytes whose leases still stand

    @property
    def leases(self) -> int:
        """Leases and readings under way: what a draining process waits for."""
        with self._lock:
            return len(self._leases)

    def publish(
        self,
        kind: HandleKind,
        key: bytes,
        fingerprint: str,
        tensor: torch.Tensor,
        *,
        seconds: float = 0.0,
    ) -> Handle:
        """Copies ``tensor`` in and leases it once; see ``domain.TensorHolder.publish``."""
        dtype, size = dtype_name(tensor.dtype), tensor.nbytes
        start = self._reserve(kind, fingerprint, size)
        try:
            self.arena.tensor(start, tensor.shape, dtype).copy_(tensor)
            digest = checksum(self.arena.view(start, size))
        except BaseException:
            with self._lock:
                self._discard(start)
            raise
        shape = tuple(tensor.shape)
        written = Held(kind, key, fingerprint, shape, dtype, start, size, digest)
        with self._lock:
            return self._grant(self._admit(written, seconds))

    def lease(self, key: bytes, fingerprint: str) -> Handle | None:
        """One more lease on an embedding that is held, or None; counts a hit or a miss."""
        with self._lock:
            if not self._embeddings.admits(fingerprint):
                return None
            found = self._embeddings.get((key, fingerprint))
            return self._grant(found) if found else None

    def verify(self, key: bytes, fingerprint: str) -> bool:
        """Hashes an embedding that is held again. One that is not as it was made is dropped, so
        that nobody leases it any more; False then. Blocks: it reads all of it."""
        with self._lock:
            found = self._embeddings.peek((key, fingerprint))
            if found is None:
                return True
            reader = secrets.token_hex(16)
            self._leases.grant(reader, found, inf)
        try:
            sound = checksum(self.arena.view(found.start, found.size_bytes)) == found.checksum
            if not sound:
                self._condemn(found)
            return sound
        finally:
            self.release([reader])

    @contextmanager
    def reading(self, lease_id: str, key: bytes, fingerprint: str) -> Iterator[Held]:
        """The tensor behind a lease; it stays where it is inside the ``with``.

        Raises:
            LeaseExpired: the lease is over or unknown, or is one on another key.
            FingerprintMismatch: the tensor hangs on another fingerprint.
        """
        with self._lock:
            found = self._opened(lease_id, key, fingerprint)
            reader = secrets.token_hex(16)
            self._leases.grant(reader, found, inf)
        try:
            yield found
        finally:
            self.release([reader])

    def extend(self, lease_id: str, key: bytes, fingerprint: str, seconds: float) -> Held:
        """The tensor behind a lease, which stands for ``seconds`` more at least: for a reader that
        says nothing when it is done.

        Raises:
            LeaseExpired, FingerprintMismatch: as for ``reading``.
        """
        with self._lock:
            found = self._opened(lease_id, key, fingerprint)
            self._leases.extend(lease_id, self._clock() + seconds)
            return found

    def release(self, lease_ids: Iterable[str]) -> int:
        """Ends leases; unknown ones are passed over. How many ended."""
        with self._lock:
            ended = [self._leases.release(lease_id) for lease_id in lease_ids]
            those = [held for held in ended if held is not None]
            self._settle(those)
            return len(those)

    def expire(self) -> int:
        """Ends every lease whose time is over. How many ended."""
        with self._lock:
            return self._expire()

    def drop_others(self, keep: str) -> tuple[int, int]:
        """Drops every embedding that hangs on another fingerprint; leased ones when released.

        Returns:
            Entries dropped and bytes freed.
        """
        with self._lock:
            dropped = self._embeddings.drop_others(keep)
            for held in dropped:
                self.arena.free(held.start)
            return len(dropped), sum(held.size_bytes for held in dropped)

    def holdings(self) -> list[Holding]:
        """Embeddings by fingerprint, leased ones included."""
        with self._lock:
            return self._embeddings.holdings()

    def stats(self) -> CacheStats:
        """Totals of the embedding cache."""
        with self._lock:
            stats = self._embeddings.stats()
        return stats if self._keeps_embeddings else replace(stats, capacity_bytes=0)

    def check_integrity(self) -> None:
        """Compares the books with each other.

        Raises:
            RuntimeError: they disagree.
        """
        with self._lock:
            for book in (self.arena, self._leases, self._embeddings):
                book.check_integrity()
            held = {*self._embeddings.values(), *self._kv, *self._condemned}
            starts = {*(each.start for each in held), *self._writing}
            if starts != self.arena.starts() or len(starts) != len(held) + len(self._writing):
                raise RuntimeError("ranges of the arena are not those of the tensors")
            if any(not self._leases.pinned(each) for each in self._kv):
                raise RuntimeError("keys and values outlived their lease")

    def _reserve(self, kind: HandleKind, fingerprint: str, size: int) -> int:
        if size > self.arena.size_bytes:
            raise TooLarge(
                f"a tensor of {size} bytes does not fit the {self.arena.size_bytes} bytes for "
                "tensors that peers read: raise encode.cache_bytes or language.outbox_bytes"
            )
        with self._lock:
            if kind is HandleKind.EMBEDDING:
                self._check_current(fingerprint)
            start = self._room(size)
            if start is None:
                raise Overloaded(
                    f"no room for {size} bytes: leased tensors fill the memory for peers; retry "
                    "when they have been fetched",
                    retry_after=_RETRY_AFTER,
                )
            self._writing.add(start)
            return start

    def _room(self, size: int) -> int | None:
        """A range of ``size`` bytes, evicting what it takes."""
        self._expire()
        while (start := self.arena.allocate(size)) is None:
            victim = self._embeddings.evict()
            if victim is None:
                return None
            self.arena.free(victim.start)
        return start

    def _admit(self, written: Held, seconds: float) -> Held:
        """Puts a written tensor under the books, or finds the equal one that came first."""
        if written.kind is HandleKind.KV:
            self._kv.add(written)
        else:
            first = self._embeddings.peek((written.key, written.fingerprint))
            if first is not None or not self._embeddings.admits(written.fingerprint):
                self._discard(written.start)
                self._check_current(written.fingerprint)
            if first is not None:
                return first
            self._embeddings.put(
                (written.key, written.fingerprint),
                written,
                fingerprint=written.fingerprint,
                size_bytes=written.size_bytes,
                seconds=seconds,
            )
        self._writing.discard(written.start)
        return written

    def _condemn(self, found: Held) -> None:
        """Takes a leased embedding out of the cache; its memory goes with its last lease."""
        with self._lock:
            if self._embeddings.peek((found.key, found.fingerprint)) is found:
                self._embeddings.remove((found.key, found.fingerprint))
                self._condemned.add(found)

    def _discard(self, start: int) -> None:
        self._writing.discard(start)
        self.arena.free(start)

    def _check_current(self, fingerprint: str) -> None:
        if not self._embeddings.admits(fingerprint):
            raise FingerprintMismatch(
                f"embeddings of {fingerprint[:12]} were dropped here; ask an encoder of the "
                "version that is served now"
            )

    def _grant(self, held: Held) -> Handle:
        lease_id = secrets.token_hex(16)
        self._leases.grant(lease_id, held, self._clock() + self._lease_seconds)
        return Handle(
            kind=held.kind,
            lease_id=lease_id,
            source=self._origin.source,
            instance=self._origin.instance,
            key=held.key,
            fingerprint=held.fingerprint,
            shape=held.shape,
            dtype=held.dtype,
            size_bytes=held.size_bytes,
            checksum=held.checksum,
            ttl_seconds=self._lease_seconds,
            transports=self._origin.transports,
        )

    def _opened(self, lease_id: str, key: bytes, fingerprint: str) -> Held:
        found = self._leases.find(lease_id, self._clock())
        if found is None or found.key != key:
            raise LeaseExpired("the lease is over or not of this process: make a new handle")
        if found.fingerprint != fingerprint:
            raise FingerprintMismatch(
                f"the tensor is of {found.fingerprint[:12]}, the handle of {fingerprint[:12]}: "
                "make a new handle"
            )
        return found

    def _expire(self) -> int:
        ended = self._leases.expire(self._clock())
        self._settle(ended)
        return len(ended)

    def _settle(self, those: Sequence[Held]) -> None:
        """Frees what had to wait for the end of its leases."""
        for held in set(those):
            if self._leases.pinned(held):
                continue
            if held in self._kv or held in self._condemned:
                self._kv.discard(held)
                self._condemned.discard(held)
                self.arena.free(held.start)
            elif not (self._keeps_embeddings and self._embeddings.admits(held.fingerprint)):
                self._embeddings.remove((held.key, held.fingerprint))
                self.arena.free(held.start)
