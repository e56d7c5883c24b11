"""Everything that happened in a namespace, in order, and what in it was not true.

One etcd numbers every change of every kind, so the versions of resources, Deployments and pods
line up: at any status that was written, it can be said what there was to be known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cluster.api import Api, Object
from cluster.children import COLLECTIONS, PODS, SERVICES
from cluster.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MARK: Final = "test.triptych.dev/mark"  # annotation of pods: which edit of the spec made them
COMPONENT: Final = "app.kubernetes.io/component"
RESOURCE: Final = "MultimodalService"
_OF_SERVICES: Final = {RESOURCE: SERVICES, "Deployment": COLLECTIONS["Deployment"], "Pod": PODS}
_SECONDS: Final = 60.0  # for the last events to arrive


@dataclass(frozen=True, slots=True)
class Change:
    """One version of an object; ``deleted`` with its last one, ``before`` the recording began."""

    version: int
    kind: str
    deleted: bool
    body: Mapping[str, Any]
    before: bool = False


@dataclass
class History:
    """Changes as they arrive; in order of kinds only until they are sorted."""

    changes: list[Change] = field(default_factory=list)

    def ordered(self) -> list[Change]:
        """All changes in the order in which they were made, after what there was before."""
        return sorted(self.changes, key=lambda change: (not change.before, change.version))

    def standing(self, kind: str) -> dict[str, int]:
        """Versions of what is there of a kind, by uid, as far as has arrived."""
        found: dict[str, int] = {}
        for change in self.changes:
            if change.kind != kind:
                continue
            uid = change.body["metadata"]["uid"]
            if change.deleted:
                found.pop(uid, None)
            else:
                found[uid] = change.version
        return found


@asynccontextmanager
async def recorded(
    api: Api, namespace: str, paths: Mapping[str, str] = _OF_SERVICES
) -> AsyncIterator[History]:
    """Records all that happens inside the ``async with``, by default what statuses are judged by;
    ``paths`` of collections by kind."""
    history, places = History(), {kind: path.format(namespace) for kind, path in paths.items()}
    since = {kind: await _begin(api, path, kind, history) for kind, path in places.items()}
    tasks = [
        asyncio.create_task(_follow(api, path, kind, since[kind], history))
        for kind, path in places.items()
    ]

    async def complete() -> bool:
        """Each watch tells of its own kind when it comes to it."""
        if any(task.done() for task in tasks):
            return True  # one has failed, which is raised below
        listed = {kind: await api.items(path) for kind, path in places.items()}
        return all(history.standing(kind) == _versions(items) for kind, items in listed.items())

    try:
        yield history
        await eventually(complete, "the last events", seconds=_SECONDS)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        with suppress(asyncio.CancelledError):
            task.result()


async def _begin(api: Api, path: str, kind: str, history: History) -> str:
    """Takes what there is; the version from which on to follow."""
    listed = await api.get(path)
    for body in listed["items"]:
        history.changes.append(_change(kind, "ADDED", body, before=True))
    return str(listed["metadata"]["resourceVersion"])


async def _follow(api: Api, path: str, kind: str, since: str, history: History) -> None:
    async for event in api.watch(path, since=since):
        if event["type"] != "BOOKMARK":
            history.changes.append(_change(kind, event["type"], event["object"]))


def _versions(items: Iterable[Object]) -> dict[str, int]:
    return {one["metadata"]["uid"]: int(one["metadata"]["resourceVersion"]) for one in items}


def _change(kind: str, type_: str, body: Object, *, before: bool = False) -> Change:
    version = int(body["metadata"]["resourceVersion"])
    return Change(version, kind, type_ == "DELETED", body, before)


def violations(changes: Sequence[Change]) -> list[str]:
    """What the statuses among ``changes`` claimed and was not so, in words.

    A status may be late, as whoever writes it learns of pods a little later; it may not be early.
    So a claim holds if it was true at any time before it was made, under the spec it is about. Of
    a Deployment are the pods that came after it: none is adopted here.
    """
    found: list[str] = []
    seen = _Seen()
    for change in changes:
        if change.kind == RESOURCE and not change.deleted:
            wrong = seen.judge(change)
            found += [] if change.before else wrong  # what it was judged by is not all known
        seen.take(change)
    return found


class _Seen:
    """What has been so before some moment."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, int], Object] = {}  # spec by uid and generation
        self._deployments: dict[str, Mapping[str, Any]] = {}  # as they stand, by name
        self._ready: dict[str, Mapping[str, Any]] = {}  # pods that have ever been ready, by uid
        self._since: dict[str, int] = {}  # first version of Deployments and pods, by uid
        self._status: dict[str, object] = {}  # the status last judged, by uid
        self._observed: dict[str, int] = {}  # observedGeneration, by uid

    def take(self, change: Change) -> None:
        metadata = change.body["metadata"]
        self._since.setdefault(metadata["uid"], 0 if change.before else change.version)
        if change.kind == "Deployment":
            if change.deleted:
                self._deployments.pop(metadata["name"], None)
            else:
                self._deployments[metadata["name"]] = change.body
        if change.kind == "Pod" and _condition(change.body, "Ready") == "True":
            self._ready[metadata["uid"]] = change.body

    def judge(self, change: Change) -> list[str]:
        """What is wrong with the status of a resource's version."""
        metadata, status = change.body["metadata"], change.body.get("status", {})
        uid, generation = metadata["uid"], metadata["generation"]
        self._marks[uid, generation] = change.body["spec"]
        if status == self._status.get(uid, {}):
            return []
        self._status[uid] = status
        return [f"at {change.version}: {wrong}" for wrong in self._wrong(uid, generation, status)]

    def _wrong(self, uid: str, generation: int, status: Mapping[str, Any]) -> Iterable[str]:
        observed = status.get("observedGeneration", 0)
        if observed > generation:
            yield f"observedGeneration {observed} of generation {generation}"
        before = self._observed.get(uid, observed)
        if observed < before:
            yield f"observedGeneration fell from {before} to {observed}"
        self._observed[uid] = observed
        about = {one["type"]: one.get("observedGeneration") for one in status.get("conditions", ())}
        if (
            about.get("Ready", observed) != observed
            or max(about.values(), default=observed) > observed
        ):
            yield f"conditions about {about} beside observedGeneration {observed}"
        spec = self._marks.get((uid, observed))
        if spec is not None and _condition({"status": status}, "Ready") == "True":
            for tier, given in spec["tiers"].items():
                yield from self._not_ready(tier, given)

    def _not_ready(self, tier: str, given: Mapping[str, Any]) -> Iterable[str]:
        """Why a tier was not ready, if it was not."""
        mark = _mark(given["template"])
        standing = [
            one
            for one in self._deployments.values()
            if one["metadata"]["labels"][COMPONENT] == tier
        ]
        applied = [_mark(one["spec"]["template"]) for one in standing]
        if applied != [mark]:
            yield f"Ready, but {tier} should have mark {mark} and its Deployments have {applied}"
            return
        wanted = given.get("replicas") or standing[0]["spec"].get("replicas", 1)
        since = self._since[standing[0]["metadata"]["uid"]]
        ready = [
            uid
            for uid, one in self._ready.items()
            if one["metadata"]["labels"].get(COMPONENT) == tier
            and _mark(one) == mark
            and self._since[uid] >= since
        ]
        if len(ready) < wanted:
            yield f"Ready, but {len(ready)} of {wanted} pods of {tier} with mark {mark} ever were"


def _mark(body: Mapping[str, Any]) -> str:
    return str(body.get("metadata", {}).get("annotations", {}).get(MARK, ""))


def _condition(body: Mapping[str, Any], type_: str) -> str:
    conditions = body.get("status", {}).get("conditions", ())
    return next((str(one["status"]) for one in conditions if one["type"] == type_), "")
