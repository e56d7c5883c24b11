"""Two installations that look after one namespace: the one that came later acts, the other yields.

Replicas of one installation agree by their Lease; two installations have two, and would undo each
other's writes for ever. So each leaves the name of its namespace on what it makes. Who finds
another's name where it had left its own has been taken over from: it says so and leaves that
resource alone until it is started anew, for it cannot know whether the other still runs.
"""

from __future__ import annotations

import logging
from typing import Final

from triptych_operator.api.service import Metadata
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.events import announce
from triptych_operator.controller.reconcile import Clock, microseconds, utc_now
from triptych_operator.controller.workers import Task
from triptych_operator.desired import naming
from triptych_operator.observed.store import ObjectKey, ServiceKey, Store
from triptych_operator.status.announcements import Announcement

_logger = logging.getLogger(__name__)
ANOTHER_OPERATOR: Final = "AnotherOperator"  # reason of the Event


class Custody:
    """Knows whose each resource is. ``installation`` is our own namespace; ``None`` leaves no name
    and yields to nobody."""

    def __init__(
        self, api: Api, store: Store, installation: str | None, clock: Clock = utc_now
    ) -> None:
        self._api = api
        self._store = store
        self._installation = installation
        self._clock = clock
        self._ours: set[ServiceKey] = set()  # on which our name has stood
        self._told: dict[ServiceKey, str] = {}  # of whom it was said last

    def guarded(self, task: Task) -> Task:
        """``task``, for as long as the resource is ours."""
        if self._installation is None:
            return task

        async def run(key: ServiceKey) -> None:
            other = self._other(key)
            if other is None:
                await task(key)
            elif key in self._ours:
                await self._yield(key, other)
            else:
                self._take_over(key, other)
                await task(key)

        return run

    def _other(self, key: ServiceKey) -> str | None:
        """Whose name stands on the resource's account, if not ours."""
        account = self._store.child(key, ObjectKey("ServiceAccount", *key))
        if account is None:  # of a resource that is new or gone
            self._ours.discard(key)
            self._told.pop(key, None)
            return None
        annotations = account.body()["metadata"].get("annotations", {})
        name: str | None = annotations.get(naming.OPERATOR)
        if name == self._installation:
            self._ours.add(key)
            return None
        return name

    def _take_over(self, key: ServiceKey, other: str) -> None:
        if self._is_told(key, other):
            return
        _logger.warning(
            "takes over %s/%s from the operator in namespace %s; if that one still runs, uninstall "
            "one of the two, or give each its own namespaces by --namespace",
            *(*key, other),
        )

    async def _yield(self, key: ServiceKey, other: str) -> None:
        body = self._store.resource(key)
        if body is None or self._is_told(key, other):
            return
        message = (
            f"the operator in namespace {other} has taken it over, so the one in namespace "
            f"{self._installation} leaves it alone: uninstall one of the two, or give each its own "
            "namespaces by --namespace, and then restart the one that is to act"
        )
        _logger.error("%s/%s: %s", key.namespace, key.name, message)
        about = Metadata(name=key.name, namespace=key.namespace, uid=body["metadata"]["uid"])
        told = Announcement("Warning", ANOTHER_OPERATOR, message)
        await announce(self._api, about, told, microseconds(self._clock()))

    def _is_told(self, key: ServiceKey, other: str) -> bool:
        """Whether this has been said; it has from now on."""
        before = self._told.get(key)
        self._told[key] = other
        return before == other
