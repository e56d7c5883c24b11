"""kopf at the edge: its watches fill the store, and say which resource to look at again.

``on.event`` handlers alone: they put no finalizer on anything and keep no state in annotations,
so deletion works with the operator down. They are never retried, which is fine, as all they do is
to take note; what they may miss, ``audit`` finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

import kopf
from triptych_contract.errors import Unavailable

from triptych_operator.cluster import connection
from triptych_operator.cluster.api import PAGE
from triptych_operator.cluster.kinds import OBSERVED, SERVICE_RESOURCE, Kind
from triptych_operator.controller.stateless import NO_PEER, NoDifferences, NoMemories, NoProgress
from triptych_operator.desired import naming
from triptych_operator.observed.store import ServiceKey, Store, belongs

CHILDREN_SELECTOR: Final = f"{naming.MANAGED_BY}={naming.MANAGER},{naming.INSTANCE}"
_SERVER_SECONDS: Final = 600  # a watch is opened anew after so long
_CONNECT_SECONDS: Final = 10.0
_RETRIES: Final = (0.2, 0.5, 1.0, *(2.0,) * 60)  # seconds; two minutes without an API server
_STOP_SECONDS: Final = 10.0
_START_SECONDS: Final = 30.0  # until all watches must run
_COUNT_SECONDS: Final = 2.0
_logger = logging.getLogger(__name__)


def selector(kind: Kind) -> str:
    """Label selector of what is observed of ``kind``."""
    return "" if kind == SERVICE_RESOURCE else CHILDREN_SELECTOR


class Edge:
    """The watches of one process.

    Args:
        changed: called with a resource of which something new is known.
        listed: called with a kind that a watch has listed anew, which may hide deletions.
    """

    def __init__(
        self,
        store: Store,
        *,
        changed: Callable[[ServiceKey], None],
        listed: Callable[[Kind], None],
        kinds: Sequence[Kind] = OBSERVED,
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._changed = changed
        self._listed = listed

    def take(self, kind: Kind, event: str | None, body: Any) -> None:
        """Takes in one event of a watch; ``None`` is an object that a list showed."""
        if not belongs(kind.name, body):
            return
        if event is None:
            self._listed(kind)
        if event == "DELETED":
            service = self._store.remove(kind.name, body)
        else:
            service = self._store.put(kind.name, body)
        if service is not None:
            self._changed(service)

    async def watch(
        self, kubeconfig: Path | None, namespaces: Sequence[str], started: Callable[[], None]
    ) -> None:
        """Watches until cancelled. ``started`` is called once kopf has set itself up: it takes
        over the process's signals, which are then the caller's to take back.

        Raises:
            Unavailable: kopf has ended by itself; the process should end too.
        """
        tasks = await kopf.spawn_tasks(
            registry=self._registry(kubeconfig),
            settings=_settings(self._kinds),
            memories=NoMemories(),
            identity=NO_PEER,
            standalone=True,
            clusterwide=not namespaces,
            namespaces=list(namespaces),
        )
        started()
        try:
            await self._until_one_ends(tasks, len(namespaces) or 1)
        finally:
            await _stop(tasks)

    async def _until_one_ends(self, tasks: Collection[asyncio.Task[Any]], scopes: int) -> None:
        """kopf goes on when one of its watches has died, deaf to that kind: so they are counted."""
        loop = asyncio.get_running_loop()
        needed, due = scopes * len(self._kinds), loop.time() + _START_SECONDS
        while True:
            done, _ = await asyncio.wait(
                tasks, timeout=_COUNT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                failure = None if task.cancelled() else task.exception()
                raise Unavailable(f"{task.get_name()} ended: {failure}") from failure
            watching = sum(
                task.get_name().startswith("watcher for ") for task in asyncio.all_tasks()
            )
            if watching >= needed:
                due = loop.time()  # they all have begun: from now on none may be missing
            elif loop.time() > due:
                raise Unavailable(f"only {watching} of {needed} watches run: start again")

    def _registry(self, kubeconfig: Path | None) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        async def login(**_: Any) -> kopf.ConnectionInfo:
            return await connection.for_kopf(kubeconfig)

        async def on_event(*, event: kopf.RawEvent, param: Any = None, **_: Any) -> None:
            self.take(param, event["type"], event["object"])
            shed(event["object"])

        kopf.on.login(registry=registry, id="login")(login)
        for kind in self._kinds:
            declare = kopf.on.event(
                kind.group, kind.version, kind.plural, registry=registry, id="take", param=kind
            )
            declare(on_event)
        return registry


def _settings(kinds: Sequence[Kind]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # our Events are posted by ``cluster.events`` alone
    settings.scanning.disabled = True  # no rights on namespaces and definitions are needed
    settings.persistence.diffbase_storage = NoDifferences()
    settings.persistence.progress_storage = NoProgress()
    settings.process.ultimate_exiting_timeout = None
    settings.watching.server_timeout = _SERVER_SECONDS
    settings.watching.connect_timeout = _CONNECT_SECONDS
    settings.watching.chunk_size = PAGE
    settings.networking.error_backoffs = _RETRIES
    settings.queueing.idle_timeout = 0.1
    for kind in kinds:
        if kind != SERVICE_RESOURCE:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = (
                CHILDREN_SELECTOR
            )
    return settings


def shed(body: Any) -> None:
    """Lets go of all but the names of an object that has been taken in. kopf's views of it refer
    to each other, so that it would stay whole until the next collection of garbage."""
    for part in body.keys() - {"apiVersion", "kind", "metadata"}:
        del body[part]
    body["metadata"].pop("managedFields", None)


async def _stop(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STOP_SECONDS):
            await asyncio.gather(*tasks, return_exceptions=True)
