"""One reconcile, on one screen: what should stand, make it so, say how it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from triptych_contract.errors import InvalidRequest

from triptych_operator.api.service import KIND, MultimodalService
from triptych_operator.api.status import ServiceStatus, status_in, without_others
from triptych_operator.cluster.answers import Object
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.events import announce
from triptych_operator.cluster.kinds import SERVICE_RESOURCE
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.cluster.statuses import write_status
from triptych_operator.controller.applier import Applier
from triptych_operator.desired.wanted import Wanted, WantedCache
from triptych_operator.json_values import JsonObject
from triptych_operator.observed.snapshot import explained, snapshot_of
from triptych_operator.observed.store import ServiceKey, Store, key_of, service_of, version_of
from triptych_operator.observed.troubles import Trouble
from triptych_operator.rollout.admission import pods_to_admit
from triptych_operator.rollout.step import Step, next_step
from triptych_operator.scaling.bounds import within_bounds
from triptych_operator.status.announcements import announcements
from triptych_operator.status.conditions import status_of, status_of_invalid

_logger = logging.getLogger(__name__)
_REASON_LIMIT: Final = 128  # characters of a condition's reason

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time of flips and Events."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The resource as a look at it began: its body, that body's version, the status in it."""

    body: Object
    version: int
    previous: ServiceStatus


class Reconciler:
    """Brings one resource at a time to what its spec says.

    Args:
        wanted: what resources want, as this operator is set up.
        changed: called with a resource when the answer to a write has told something new of it.
        signals_problem: why autoscalers do not get at Triptych's own signals, or nothing.
    """

    def __init__(
        self,
        api: Api,
        store: Store,
        wanted: WantedCache,
        changed: Callable[[ServiceKey], None],
        clock: Clock = utc_now,
        *,
        signals_problem: Callable[[], str] = str,
    ) -> None:
        self._api = api
        self._store = store
        self._wanted = wanted
        self._changed = changed
        self._clock = clock
        self._signals_problem = signals_problem
        self._applier = Applier(api, store, changed)

    async def reconcile(self, key: ServiceKey) -> None:
        """Looks at everything anew and does what is due; nothing when all is as it should be.

        Raises:
            Refusal: the API server refused something, which the status now says too.
        """
        body = self._store.resource(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._applier.forget(key)
            return  # its children go with it: they name it as their owner
        previous = without_others(status_in(body))
        began = _Beginning(body, self._store.version(key), previous)
        try:
            wanted = self._wanted.of(body)
        except InvalidRequest as invalid:
            await self._report_invalid(began, invalid.message)
            return
        service, revisions = wanted.service, wanted.revisions
        step, manifests = self._plan(key, wanted)
        looked_at = previous.observed_generation > 0
        if looked_at and await self._is_gone(key, service, manifests):
            return
        refused = await self._bring_about(key, wanted, step, manifests)
        trouble = _trouble(refused) if refused else None
        observed = snapshot_of(self._store.children(key), trouble)
        snapshot = explained(observed, self._signals_problem())
        status = status_of(service, revisions, snapshot, previous, seconds(self._clock()))
        await self._report(began, service, status)
        if refused:
            raise refused

    def _plan(self, key: ServiceKey, wanted: Wanted) -> tuple[Step, list[JsonObject]]:
        spec, snapshot = wanted.service.spec, snapshot_of(self._store.children(key))
        step = next_step(spec.topology, wanted.revisions, spec.rollout.surge_percent, snapshot)
        return step, within_bounds(wanted.of_tiers(step.apply), spec, snapshot)

    async def _is_gone(
        self, key: ServiceKey, service: MultimodalService, manifests: Sequence[JsonObject]
    ) -> bool:
        """Whether the resource itself has been deleted. What is missing of one that has been looked
        at before may have gone with it: watches tell of kinds in any order, and to make it anew
        would start pods for nobody."""
        standing = {child.key for child in self._store.children(key)}
        if all(key_of(str(one["kind"]), one) in standing for one in manifests):
            return False
        found = await self._api.find(SERVICE_RESOURCE, key.namespace, key.name)
        return found is None or found["metadata"]["uid"] != service.metadata.uid

    async def _bring_about(
        self, key: ServiceKey, wanted: Wanted, step: Step, manifests: Sequence[JsonObject]
    ) -> Refusal | None:
        service = wanted.service
        try:
            await self._applier.apply(service, manifests)
            await self._applier.prune(service, manifests, step.keep)
            await self._admit(key, wanted)
        except Refusal as refused:
            return refused
        return None

    async def _admit(self, key: ServiceKey, wanted: Wanted) -> None:
        spec, snapshot = wanted.service.spec, snapshot_of(self._store.children(key))
        percent = spec.rollout.surge_percent
        names = pods_to_admit(spec.topology, wanted.revisions, percent, snapshot)
        calls = (self._applier.admit(key, name, seconds(self._clock())) for name in names)
        await asyncio.gather(*calls)
        if names:
            self._changed(key)  # the answers may tell that pods are ready, which no watch repeats

    async def _report_invalid(self, began: _Beginning, problem: str) -> None:
        generation = began.body["metadata"]["generation"]
        now = seconds(self._clock())
        status = status_of_invalid(generation, problem, began.previous, now)
        await self._write_status(began, status)

    async def _report(
        self, began: _Beginning, service: MultimodalService, status: ServiceStatus
    ) -> None:
        if not await self._write_status(began, status):
            return
        for told in announcements(began.previous, status):
            await announce(self._api, service.metadata, told, microseconds(self._clock()))

    async def _write_status(self, began: _Beginning, status: ServiceStatus) -> bool:
        """Writes the status if it says anything new, and tells whether it did."""
        previous = began.previous
        if status == previous or status.observed_generation < previous.observed_generation:
            return False
        said = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        key = service_of(KIND, began.body)
        with self._store.writing(key, key_of(KIND, began.body)):
            written = began.version
            try:
                answer = await write_status(self._api, began.body, began.version, said)
                if answer is not None:
                    self._store.put(KIND, answer)
                    written = version_of(answer)
            finally:
                if self._store.version(key) > written:
                    self._changed(key)  # by others meanwhile
        return answer is not None


def _trouble(refused: Refusal) -> Trouble:
    return Trouble(refused.cause[:_REASON_LIMIT], refused.message, lasting=not refused.passes)


def seconds(time: datetime) -> str:
    """RFC 3339, as in conditions."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def microseconds(time: datetime) -> str:
    """RFC 3339 with microseconds, as in Events."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
