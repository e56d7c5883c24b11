"""What the watches may have missed, found by listing everything now and then.

A watch can lose events: its connection goes silent, a proxy drops something, or it begins anew
after a deletion. Lists of metadata alone are cheap enough to compare with the store every few
seconds, so whatever was missed is known within one period. A page that is as it was a period ago is
not read again: what it holds is known by its digest.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import Counter

from triptych_operator.cluster.answers import Page
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.kinds import OBSERVED, SERVICE_RESOURCE, Kind
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.controller.edge import selector
from triptych_operator.observed.store import (
    ObjectKey,
    ServiceKey,
    Store,
    belongs,
    key_of,
    service_of,
    version_of,
)

_RELIST_PAUSE: Final = 1.0  # seconds; a watch's list arrives as many events
_AT_A_TIME: Final = 8  # objects read at a time
_logger = logging.getLogger(__name__)

MISSED: Final = Counter(
    "triptych_operator_missed_changes", "Changes found by a list and not by a watch", ["kind"]
)


class _Listed:
    """What a page holds, in little memory: of all pages that is as much as the store holds."""

    __slots__ = ("_keys", "_services", "_versions")

    def __init__(self, found: Sequence[tuple[ServiceKey, ObjectKey, int]]) -> None:
        self._services = tuple(service for service, _, _ in found)
        self._keys = tuple(key for _, key, _ in found)
        self._versions = array("Q", (version for _, _, version in found))

    def __iter__(self) -> Iterator[tuple[ServiceKey, ObjectKey, int]]:
        """Each object's resource, key and version."""
        return zip(self._services, self._keys, self._versions, strict=True)


class Audit:
    """Compares lists with the store. ``changed`` is called with each resource that differed."""

    def __init__(
        self,
        api: Api,
        store: Store,
        scopes: Sequence[str | None],
        period: float,
        changed: Callable[[ServiceKey], None],
        *,
        kinds: Sequence[Kind] = OBSERVED,
    ) -> None:
        self._api = api
        self._store = store
        self._scopes = scopes
        self._kinds = kinds
        self._period = period
        self._changed = changed
        # What each page of the last lists held, by its digest.
        self._pages: dict[tuple[Kind, str | None], dict[bytes, _Listed]] = {}
        self._relisted: set[Kind] = set()
        self._wake = asyncio.Event()
        self.finished_at = 0.0  # loop time at which the last list was compared

    async def fill(self) -> None:
        """Puts everything that exists into the store.

        Raises:
            Refusal: a list was refused.
        """
        for kind in self._kinds:
            for scope in self._scopes:
                async for page in self._api.pages(kind, scope, selector(kind)):
                    for body in page.items():
                        self._store.put(kind.name, body)
        self.finished_at = asyncio.get_running_loop().time()

    def soon(self, kind: Kind) -> None:
        """Has ``kind`` compared within a moment, and with the resources everything else too: what
        broke that watch may have broken all, and of a list of nothing no watch tells."""
        self._relisted.update(self._kinds if kind == SERVICE_RESOURCE else (kind,))
        self._wake.set()

    async def run(self) -> None:
        """Compares every kind once a period, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            for kind in self._kinds:
                await self._try(kind)
                await self._pause(loop.time() + self._period / len(self._kinds))

    async def compare(self, kind: Kind) -> None:
        """Compares all objects of ``kind`` with the store.

        Raises:
            Refusal: a list or a read was refused.
        """
        for scope in self._scopes:
            await self._compare_in(kind, scope)

    async def _compare_in(self, kind: Kind, scope: str | None) -> None:
        before, now = self._pages.get((kind, scope), {}), dict[bytes, _Listed]()
        seen: dict[ObjectKey, ServiceKey] = {}
        changed: list[ObjectKey] = []
        listed = 0
        async for page in self._api.pages(kind, scope, selector(kind), metadata_only=True):
            listed = page.version
            digest = hashlib.sha256(page.text).digest()
            now[digest] = before.get(digest) or _Listed([*self._read_page(kind, page)])
            await asyncio.sleep(0)  # a change that has come meanwhile goes first
            for service, key, at in now[digest]:
                seen[key] = service
                if self._is_news(service, key, at):
                    changed.append(key)
        self._pages[kind, scope] = now
        await self._read(kind, changed)
        await asyncio.sleep(0)
        self._drop_missing(kind, scope, seen, listed)

    def _read_page(self, kind: Kind, page: Page) -> Iterator[tuple[ServiceKey, ObjectKey, int]]:
        services: dict[ServiceKey, ServiceKey] = {}  # one of each, and the store's own keys: many
        for body in page.heads():
            if belongs(kind.name, body):
                service, key = service_of(kind.name, body), key_of(kind.name, body)
                known = self._store.child(service, key)
                shared = services.setdefault(service, service)
                yield shared, known.key if known else key, version_of(body)

    def _is_news(self, service: ServiceKey, key: ObjectKey, version: int) -> bool:
        known = self._store.child(service, key)
        return known is None or known.version < version

    async def _read(self, kind: Kind, keys: Sequence[ObjectKey]) -> None:
        for start in range(0, len(keys), _AT_A_TIME):
            batch = keys[start : start + _AT_A_TIME]
            calls = (self._api.find(kind, key.namespace, key.name) for key in batch)
            for body in await asyncio.gather(*calls):
                if body is not None and belongs(kind.name, body):
                    self._note(kind, self._store.put(kind.name, body))

    def _drop_missing(
        self, kind: Kind, scope: str | None, seen: Mapping[ObjectKey, ServiceKey], listed: int
    ) -> None:
        """Forgets what the list did not show, unless it is younger than the list."""
        gone = [
            (service, child.key)
            for service, child in self._store.of_kind(kind.name)
            if seen.get(child.key) != service
            and child.version <= listed
            and scope in (None, child.key.namespace)
        ]
        for service, key in gone:
            self._store.forget(service, key)
            self._note(kind, service)

    def _note(self, kind: Kind, service: ServiceKey | None) -> None:
        if service is not None:
            MISSED.labels(kind.name).inc()
            self._changed(service)

    async def _try(self, kind: Kind) -> None:
        try:
            await self.compare(kind)
        except Refusal as refused:
            _logger.warning("%s could not be compared: %s", kind.plural, refused.message)
        else:
            self.finished_at = asyncio.get_running_loop().time()

    async def _pause(self, until: float) -> None:
        """Waits, and compares meanwhile what a watch has listed anew."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._wake.wait()
                    await asyncio.sleep(_RELIST_PAUSE)
            relisted, self._relisted = self._relisted, set()
            self._wake.clear()
            if not relisted:
                return
            for kind in relisted:
                await self._try(kind)
