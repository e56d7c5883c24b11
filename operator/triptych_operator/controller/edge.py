"""kopf at the edge: its watches fill the store, and say which resource to look at again.

kopf's streams of events alone, with its credentials and its supervision, and none of its handlers:
nothing gets a finalizer or an annotation, so deletion works with the operator down, and all that
is done with an event is to take note of it (docs/adr/0010). What is missed, ``audit`` finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

import kopf
from kopf._cogs.clients.watching import Bookmark, infinite_watch
from kopf._cogs.structs.references import NamespaceName, Resource
from kopf._core.engines.peering import Identity
from triptych_contract.errors import Unavailable

from triptych_operator.cluster import connection
from triptych_operator.cluster.api import PAGE
from triptych_operator.cluster.kinds import OBSERVED, SERVICE_RESOURCE, Kind
from triptych_operator.desired import naming
from triptych_operator.observed.store import ServiceKey, Store, belongs

CHILDREN_SELECTOR: Final = f"{naming.MANAGED_BY}={naming.MANAGER},{naming.INSTANCE}"
_SERVER_SECONDS: Final = 600  # a watch is opened anew after so long
_CONNECT_SECONDS: Final = 10.0
_RETRIES: Final = (0.2, 0.5, 1.0, *(2.0,) * 60)  # seconds; two minutes without an API server
_STOP_SECONDS: Final = 10.0
# Who this process is among peers, which it has none of. kopf would ask for the user's name, and the
# user of a container has none.
_NO_PEER: Final = Identity("triptych-operator")
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

    async def take_all(self, kind: Kind, events: AsyncIterator[Any]) -> None:
        """Takes in event after event of one watch."""
        async for event in events:
            if isinstance(event, Bookmark) or event["type"] == "BOOKMARK":
                continue  # they tell of no object
            try:
                self.take(kind, event["type"], event["object"])
            except Exception:  # a fault of ours with one object must not hide all others
                _logger.exception("an event of %s was not taken in", kind.plural)

    async def watch(
        self, kubeconfig: Path | None, namespaces: Sequence[str], started: Callable[[], None]
    ) -> None:
        """Watches until cancelled. ``started`` is called once kopf has set itself up: it takes
        over the process's signals, which are then the caller's to take back.

        Raises:
            Unavailable: kopf has ended by itself; the process should end too.
        """
        settings = _settings(self._kinds)
        tasks = await kopf.spawn_tasks(
            registry=_registry(kubeconfig),
            settings=settings,
            identity=_NO_PEER,
            standalone=True,
            clusterwide=not namespaces,
            namespaces=list(namespaces),
        )
        watches = [
            asyncio.create_task(
                self.take_all(kind, _events(kind, scope, settings)),
                name=f"watch of {kind.plural} in {scope or 'all namespaces'}",
            )
            for kind in self._kinds
            for scope in namespaces or (None,)
        ]
        started()
        try:
            await _until_one_ends([*tasks, *watches])
        finally:
            await _stop([*tasks, *watches])


def _registry(kubeconfig: Path | None) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection.for_kopf(kubeconfig)

    kopf.on.login(registry=registry, id="login")(login)
    return registry


def _events(kind: Kind, scope: str | None, settings: kopf.OperatorSettings) -> AsyncIterator[Any]:
    return infinite_watch(
        settings=settings,
        resource=Resource(kind.group, kind.version, kind.plural, namespaced=True),
        namespace=NamespaceName(scope) if scope is not None else None,
    )


def _settings(kinds: Sequence[Kind]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True  # no rights on namespaces and definitions are needed
    settings.process.ultimate_exiting_timeout = None
    settings.watching.server_timeout = _SERVER_SECONDS
    settings.watching.connect_timeout = _CONNECT_SECONDS
    settings.watching.chunk_size = PAGE
    settings.networking.error_backoffs = _RETRIES
    for kind in kinds:
        if kind != SERVICE_RESOURCE:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = (
                CHILDREN_SELECTOR
            )
    return settings


async def _until_one_ends(tasks: Collection[asyncio.Task[Any]]) -> None:
    """None of them ends by itself while all is well; without one of its watches, a process would
    be deaf to a kind."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        failure = None if task.cancelled() else task.exception()
        raise Unavailable(f"{task.get_name()} ended: {failure}") from failure


async def _stop(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STOP_SECONDS):
            await asyncio.gather(*tasks, return_exceptions=True)
