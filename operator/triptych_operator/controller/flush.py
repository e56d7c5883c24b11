"""One flush, on one screen: is one due, who holds what, have them drop it, say how it went.

Apart from the reconcile of children, since pods that do not answer must not hold that up. It has
its own queue, and its own part of the status under its own field manager.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from triptych_contract.errors import FingerprintMismatch, InvalidRequest, Unavailable

from triptych_operator.api.service import KIND, MultimodalService
from triptych_operator.api.status import (
    CachesStatus,
    Condition,
    ConditionType,
    ServiceStatus,
    status_in,
)
from triptych_operator.caches.calls import HolderCalls
from triptych_operator.caches.coherence import (
    Cause,
    Finding,
    Holder,
    Outcome,
    Verdict,
    cause,
    finding,
    holders,
)
from triptych_operator.cluster.answers import Object
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.events import announce
from triptych_operator.cluster.statuses import write_status
from triptych_operator.controller.reconcile import Clock, microseconds, seconds, utc_now
from triptych_operator.desired import naming
from triptych_operator.desired.platform import Platform
from triptych_operator.desired.wanted import Wanted, WantedCache
from triptych_operator.observed.snapshot import Snapshot, snapshot_of
from triptych_operator.observed.store import ServiceKey, Store
from triptych_operator.rollout.completeness import is_complete
from triptych_operator.runtime import encodes, revisions
from triptych_operator.status.announcements import Announcement

_logger = logging.getLogger(__name__)
CACHES_MANAGER: Final = "triptych-caches"
_COHERENT_STILL: Final = Finding(
    Verdict.COHERENT, "every holder holds what the encoder of this version made, and nothing else"
)
_RESTING: Final = Finding(
    Verdict.ROLLING_OUT, "waits for an encoder, of which there is none while no picture comes"
)
_ROLLING: Final = Finding(Verdict.ROLLING_OUT, "waits for the new version to be in service")


@dataclass(frozen=True, slots=True)
class _Due:
    """A flush that is due, and what is known of the resource. Without a ``cause`` nothing is to be
    flushed, and the condition is to be said of this generation too."""

    body: Object
    version: int  # of the body
    wanted: Wanted
    cause: Cause | None
    revision: str
    token: str
    caches: CachesStatus
    condition: Condition | None

    @property
    def service(self) -> MultimodalService:
        """The resource."""
        return self.wanted.service


class Flusher:
    """Has the holders of one resource's caches follow its encoder.

    Args:
        wanted: shared with the reconcile, that looks at the same resources at the same time.
    """

    def __init__(
        self,
        api: Api,
        store: Store,
        platform: Platform,
        wanted: WantedCache,
        calls: HolderCalls,
        *,
        clock: Clock = utc_now,
    ) -> None:
        self._api = api
        self._store = store
        self._platform = platform
        self._wanted = wanted
        self._calls = calls
        self._clock = clock

    async def flush(self, key: ServiceKey) -> None:
        """Flushes if it is due.

        Raises:
            Unavailable: not every holder has followed yet; the status names those.
            FingerprintMismatch: an encoder is not what it says; the status names it.
            Refusal: the status could not be written.
        """
        due = self._due(key)
        if due is None:
            return
        if due.cause is None:
            await self._report(due, _COHERENT_STILL)
            return
        snapshot = snapshot_of(self._store.children(key))
        if not _in_service(due.wanted, snapshot):
            await self._report(due, _ROLLING)
            return  # whatever changes makes it due again
        try:
            fingerprint = await self._fingerprint(due, snapshot)
        except Unavailable as silent:
            await self._report(due, Finding(Verdict.UNREACHABLE, silent.message))
            raise
        except FingerprintMismatch as strange:
            await self._report(due, Finding(Verdict.CONTRADICTORY, strange.message))
            raise
        if fingerprint is None:
            await self._report(due, _RESTING)
            return
        if not fingerprint:
            await self._report(due, Finding(Verdict.ENCODERS_DIFFER, "encoders of two versions"))
            raise Unavailable("the encoders do not agree on a fingerprint yet")
        outcomes = await self._drop(holders(snapshot), fingerprint)
        found = finding(fingerprint, outcomes)
        if not found.coherent:
            await self._report(due, found)
            raise Unavailable(found.message)
        await self._complete(due, fingerprint, outcomes, found)

    def _due(self, key: ServiceKey) -> _Due | None:
        body = self._store.resource(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return None
        try:
            wanted = self._wanted.of(body)
        except InvalidRequest:
            return None  # the reconcile says so
        service = wanted.service
        status = status_in(body)
        caches = status.caches or CachesStatus()
        condition = _coherence(status)
        asked = revisions(service.spec, self._platform.image_of(service)).encoder
        token = service.metadata.annotations.get(naming.FLUSH, "")
        coherent = condition is not None and condition.status == "True"
        why = cause(caches, asked, token, coherent=coherent)
        told = condition.observed_generation if condition is not None else 0
        if why is None and told == service.metadata.generation:
            return None
        version = self._store.version(key)
        return _Due(body, version, wanted, why, asked, token, caches, condition)

    async def _fingerprint(self, due: _Due, snapshot: Snapshot) -> str | None:
        """The one of all pods that encode; empty when they differ. While none stands, as all of
        them rest, the one that this revision had before; ``None`` when it has had none yet."""
        asked = [one for one in holders(snapshot) if encodes(due.service.spec, one.tier)]
        if not asked:
            return due.caches.fingerprint if due.caches.revision == due.revision else None
        answers = await asyncio.gather(*(self._calls.fingerprint(one) for one in asked))
        return answers[0] if len(set(answers)) == 1 else ""

    async def _drop(self, asked: list[Holder], fingerprint: str) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for tier in dict.fromkeys(one.tier for one in asked):
            of_tier = [one for one in asked if one.tier is tier]
            outcomes += await self._calls.flush(of_tier, fingerprint)
        return outcomes

    async def _complete(
        self, due: _Due, fingerprint: str, outcomes: list[Outcome], found: Finding
    ) -> None:
        freed = sum(one.freed_bytes for one in outcomes)
        caches = CachesStatus(
            fingerprint=fingerprint,
            epoch=due.caches.epoch + 1,
            holders=f"{len(outcomes)}/{len(outcomes)}",
            bytes_freed=freed,
            last_flush_time=seconds(self._clock()),
            reason=due.cause or "",
            revision=due.revision,
            flush_token=due.token,
        )
        told = f"{due.cause}: {found.message}; {freed} bytes freed"
        await self._report(due, found, caches, Announcement("Normal", "CachesFlushed", told))
        _logger.info("%s: %s", due.service.metadata.name, told)

    async def _report(
        self,
        due: _Due,
        found: Finding,
        caches: CachesStatus | None = None,
        told: Announcement | None = None,
    ) -> None:
        """Writes what is new, and tells of what is worth it."""
        condition = self._condition(due, found)
        if caches is None and condition == due.condition:
            return
        status = ServiceStatus(conditions=(condition,), caches=caches or due.caches)
        dump = status.model_dump(
            mode="json",
            by_alias=True,
            include={"conditions", "caches"},
            exclude={"caches": {"use"}},  # whoever reads the signals says that
        )
        answer = await write_status(self._api, due.body, due.version, dump, manager=CACHES_MANAGER)
        if answer is None:
            return  # deleted meanwhile
        self._store.put(KIND, answer)
        fresh = due.condition is None or due.condition.reason != condition.reason
        if told is None and fresh and found.verdict is not Verdict.ROLLING_OUT:
            told = Announcement("Warning", found.verdict, found.message)
        if told is not None:
            await announce(self._api, due.service.metadata, told, microseconds(self._clock()))

    def _condition(self, due: _Due, found: Finding) -> Condition:
        status = "True" if found.coherent else "False"
        before = due.condition
        kept = before is not None and before.status == status
        return Condition.model_validate(
            {
                "type": ConditionType.CACHES_COHERENT,
                "status": status,
                "reason": found.verdict,
                "message": found.message,
                "lastTransitionTime": (
                    before.last_transition_time if before and kept else seconds(self._clock())
                ),
                "observedGeneration": due.service.metadata.generation,
            }
        )


def _in_service(wanted: Wanted, snapshot: Snapshot) -> bool:
    return all(
        is_complete(snapshot.tier(tier), revision) for tier, revision in wanted.revisions.items()
    )


def _coherence(status: ServiceStatus) -> Condition | None:
    return next(
        (one for one in status.conditions if one.type == ConditionType.CACHES_COHERENT), None
    )
