"""Pictures by the names that clients gave them, so that a client need not send one again.

A name is the client's word and no part of any key: it leads to bytes that the same tenant sent
under it, and the bytes' own digest is what caches know. Pure: bounded in bytes and entries.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from triptych_contract.errors import MediaConflict
from triptych_contract.fingerprints import media_digest

from triptych_gateway.media.content import Content
from triptych_gateway.media.data_urls import is_data_url

# What an entry counts for beside its picture.
_ENTRY_BYTES: Final = 1024
_MAX_ENTRIES: Final = 16384


@dataclass(frozen=True, slots=True)
class _Known:
    content: Content
    origin: bytes | None  # digest of the URL that it was fetched from; None if the client sent it

    @property
    def size_bytes(self) -> int:
        return len(self.content.encoded) + _ENTRY_BYTES


@dataclass(slots=True)
class _Tenant:
    """One tenant's names, least recently used first."""

    entries: OrderedDict[str, _Known] = field(default_factory=OrderedDict)
    size_bytes: int = 0


class KnownMedia:
    """At most ``capacity`` bytes of pictures. Whoever holds most makes room, so that one tenant
    cannot push out what another needs."""

    def __init__(self, capacity: int) -> None:
        self.capacity: Final = capacity
        self.size_bytes = 0
        self.entries = 0
        self._tenants: dict[bytes, _Tenant] = {}

    def find(self, salt: bytes, uuid: str, url: str) -> Content | None:
        """What the tenant sent as ``uuid``. None if that is not known, or if ``url`` may lead to
        something else: it carries content itself, or is not where the known content came from."""
        known = self._used(salt, uuid)
        if known is None or (url and (known.origin is None or known.origin != _origin(url))):
            return None
        return known.content

    def bind(self, salt: bytes, uuid: str, url: str, content: Content) -> None:
        """Lets ``uuid`` stand for ``content`` from now on; the first time counts.

        Raises:
            MediaConflict: it stands for other content already.
        """
        known = self._used(salt, uuid)
        if known is not None and known.content.digest != content.digest:
            raise MediaConflict(
                "this uuid stands for another image that was sent before: give a changed image a "
                "uuid of its own"
            )
        if known is None:
            self._keep(salt, uuid, _Known(content, _origin(url)))

    def check(self) -> None:
        """Raises AssertionError if the books do not balance; for tests."""
        tenants = list(self._tenants.values())
        sizes = [sum(known.size_bytes for known in one.entries.values()) for one in tenants]
        if sizes != [one.size_bytes for one in tenants] or sum(sizes) != self.size_bytes:
            raise AssertionError(f"{sizes} bytes held, {self.size_bytes} in the books")
        if self.entries != sum(len(one.entries) for one in tenants) or not all(sizes):
            raise AssertionError(f"{self.entries} entries in the books")
        if self.size_bytes > self.capacity:
            raise AssertionError(f"{self.size_bytes} bytes held of {self.capacity}")

    def _used(self, salt: bytes, uuid: str) -> _Known | None:
        """The entry, now the most recently used of its tenant."""
        tenant = self._tenants.get(salt)
        if tenant is None or uuid not in tenant.entries:
            return None
        tenant.entries.move_to_end(uuid)
        return tenant.entries[uuid]

    def _keep(self, salt: bytes, uuid: str, known: _Known) -> None:
        if known.size_bytes > self.capacity:
            return
        tenant = self._tenants.setdefault(salt, _Tenant())
        tenant.entries[uuid] = known
        tenant.size_bytes += known.size_bytes
        self.size_bytes += known.size_bytes
        self.entries += 1
        while self.size_bytes > self.capacity or self.entries > _MAX_ENTRIES:
            self._make_room()

    def _make_room(self) -> None:
        """Forgets the entry that the tenant with most bytes has not used for longest."""
        salt, tenant = max(self._tenants.items(), key=lambda item: item[1].size_bytes)
        _, gone = tenant.entries.popitem(last=False)
        tenant.size_bytes -= gone.size_bytes
        self.size_bytes -= gone.size_bytes
        self.entries -= 1
        if not tenant.entries:
            del self._tenants[salt]


def _origin(url: str) -> bytes | None:
    """What tells one fetched URL from another; content that the client sends has no other origin,
    and is looked at each time."""
    return None if is_data_url(url) else media_digest(url.encode())
