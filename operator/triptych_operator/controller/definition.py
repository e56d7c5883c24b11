"""The cluster's resource definition against our own: with another one, nothing is done.

An operator that acts by another schema than the server's takes what it cannot see for what was
not given, and deletes what somebody wanted. So it says so on every resource, and waits; what
stands goes on serving.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from triptych_operator.api.service import KIND
from triptych_operator.api.status import status_in, without_others
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.cluster.statuses import write_status
from triptych_operator.controller.reconcile import Clock, seconds, utc_now
from triptych_operator.controller.workers import Task
from triptych_operator.crd.definition import schema_stamp
from triptych_operator.crd.version import OPENAPI_PATH, Skew, skew
from triptych_operator.observed.store import ServiceKey, Store
from triptych_operator.observed.troubles import Reason
from triptych_operator.status.conditions import status_of_left_alone

_logger = logging.getLogger(__name__)
_INDEX: Final = "/openapi/v3"
_SAID: Final = {
    Skew.OLDER: (
        Reason.DEFINITION_OLDER,
        "the cluster's MultimodalService definition is older than this operator, which does "
        "nothing until it is updated: `kubectl apply --server-side -f crds/` of this version, or "
        "upgrade the chart; what stands goes on serving",
    ),
    Skew.NEWER_OR_OTHER: (
        Reason.DEFINITION_OTHER,
        "the cluster's MultimodalService definition is newer than this operator, which does "
        "nothing until it is upgraded to that version too; what stands goes on serving",
    ),
}


class Definition:
    """Knows how the cluster's definition compares with ours. ``changed`` is called with every
    resource when that changes."""

    def __init__(
        self,
        api: Api,
        store: Store,
        changed: Callable[[ServiceKey], None],
        own: str | None = None,
        clock: Clock = utc_now,
    ) -> None:
        """``own``: the stamp of the schema that this operator knows, if not this version's."""
        self._api = api
        self._store = store
        self._changed = changed
        self._own = own or schema_stamp()
        self._clock = clock
        self._seen = ""  # what the server's index said of the document when it was read last
        self.skew = Skew.SAME

    async def run(self, period: float) -> NoReturn:
        """Looks every ``period`` seconds."""
        while True:
            await asyncio.sleep(period)
            await self.check()

    async def check(self) -> None:
        """Looks now. What cannot be read is taken to be as it was."""
        try:
            index = await self._api.read(_INDEX)
            where = _entry(index)
            if where == self._seen:
                return
            found = skew(await self._api.read(OPENAPI_PATH), self._own)
        except Refusal as refused:
            _logger.warning("the resource definition could not be read: %s", refused.message)
            return
        self._seen = where
        if found is self.skew:
            return
        self.skew = found
        if found in _SAID:
            _logger.error("%s", _SAID[found][1])
        for key in self._store.services():
            self._changed(key)

    def guarded(self, task: Task) -> Task:
        """``task``, or to say why not."""

        async def run(key: ServiceKey) -> None:
            if self.skew is Skew.SAME:
                await task(key)
            else:
                await self._refuse(key)

        return run

    async def _refuse(self, key: ServiceKey) -> None:
        body = self._store.resource(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return
        reason, message = _SAID[self.skew]
        previous = without_others(status_in(body))
        status = status_of_left_alone(reason, message, previous, seconds(self._clock()))
        if status == previous:
            return
        said = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        answer = await write_status(self._api, body, self._store.version(key), said)
        if answer is not None:
            self._store.put(KIND, answer)


def _entry(index: Mapping[str, Any]) -> str:
    """Where the document is, which has a digest of it in its query."""
    group = OPENAPI_PATH.removeprefix(f"{_INDEX}/")
    return str(index.get("paths", {}).get(group, {}).get("serverRelativeURL", ""))
