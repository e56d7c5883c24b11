"""What the watches have shown of every resource and its children, in little memory. Pure.

An object is kept as compressed JSON of what a reconcile reads; times, counts and the bookkeeping
of the server are left out, so that a change of those alone is no change. An older version never
replaces a newer one, whatever the order in which watches, lists and answers arrive.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from triptych_operator.api.service import API_VERSION, KIND
from triptych_operator.desired import naming
from triptych_operator.observed.packing import Packer, unpack

Object = Mapping[str, Any]

_METADATA: Final = (
    "name", "namespace", "uid", "labels", "annotations", "ownerReferences", "deletionTimestamp",
)  # fmt: skip
_STATUS_KINDS: Final = frozenset({KIND, "Pod", "HorizontalPodAutoscaler"})
_POD_COUNTS: Final = ("replicas", "updatedReplicas", "readyReplicas")
_POD_STATUS: Final = ("conditions", "podIP", "containerStatuses", "initContainerStatuses")
_TIMES: Final = frozenset({"lastTransitionTime", "lastProbeTime", "lastScaleTime"})
_KEEP_GENERATION: Final = frozenset({KIND})


class ServiceKey(NamedTuple):
    """Which resource."""

    namespace: str
    name: str


class ObjectKey(NamedTuple):
    """Which object."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Child:
    """One object as it was last seen."""

    key: ObjectKey
    uid: str
    version: int
    replicas_ours: bool  # of a Deployment: nobody but us has set its replicas
    rolled_out: bool  # of a Deployment: by its own status all its pods are of this version, ready
    packed: bytes
    against: bytes  # what ``packed`` is told against: the same for all of its kind

    def body(self) -> Object:
        """What is kept of it."""
        return unpack(self.packed, self.against)


class Store:
    """Objects by the resource that they belong to."""

    def __init__(self) -> None:
        self._objects: dict[ServiceKey, dict[ObjectKey, Child]] = {}
        self._packers: defaultdict[str, Packer] = defaultdict(Packer)
        self._written: set[tuple[ServiceKey, ObjectKey]] = set()  # at this moment, by us
        self._revisions: dict[ServiceKey, int] = {}  # of the resources in ``_objects``
        self._changes = 0

    def put(self, kind: str, body: Object) -> ServiceKey | None:
        """Takes in an object; the resource it belongs to, when that has anything new in it."""
        service, key = service_of(kind, body), key_of(kind, body)
        metadata = body["metadata"]
        version = version_of(body)
        known = self._objects.get(service, {}).get(key)
        if known is not None and known.version >= version:
            return None
        packer = self._packers[kind]
        packed = packer.pack(_reduced(kind, body))
        ours = kind == "Deployment" and _replicas_ours(metadata.get("managedFields", ()))
        rolled_out = kind == "Deployment" and is_rolled_out(body)
        child = Child(key, metadata["uid"], version, ours, rolled_out, packed, packer.against)
        self._objects.setdefault(service, {})[key] = child
        if known is not None and _says_the_same(known, child):
            return None
        self._count_change(service)
        return None if (service, key) in self._written else service

    @contextmanager
    def writing(self, service: ServiceKey, key: ObjectKey) -> Iterator[None]:
        """While an object is written, what is put of it is no news: most often it tells of that
        very write, before its answer does. Whoever writes it looks whether it was more."""
        self._written.add((service, key))
        try:
            yield
        finally:
            self._written.discard((service, key))

    def remove(self, kind: str, body: Object) -> ServiceKey | None:
        """Forgets an object that was deleted; the resource it belonged to, if it was known."""
        service, key = service_of(kind, body), key_of(kind, body)
        known = self._objects.get(service, {}).get(key)
        if known is None or known.uid != body["metadata"]["uid"]:
            return None
        self.forget(service, key)
        return service

    def forget(self, service: ServiceKey, key: ObjectKey) -> None:
        """Drops an object that is known not to exist any more."""
        objects = self._objects.get(service, {})
        if objects.pop(key, None) is not None:
            self._count_change(service)
        if not objects:
            self._objects.pop(service, None)
            self._revisions.pop(service, None)

    def resource(self, service: ServiceKey) -> Object | None:
        """The MultimodalService itself."""
        child = self._objects.get(service, {}).get(ObjectKey(KIND, *service))
        if child is None:
            return None
        return {"apiVersion": API_VERSION, "kind": KIND, **child.body()}

    def version(self, service: ServiceKey) -> int:
        """The version of the MultimodalService itself as it is known; 0 when it is not."""
        child = self._objects.get(service, {}).get(ObjectKey(KIND, *service))
        return child.version if child is not None else 0

    def revision(self, service: ServiceKey) -> int:
        """Another number whenever anything of ``service`` has changed; 0 when nothing is known."""
        return self._revisions.get(service, 0)

    def children(self, service: ServiceKey) -> list[Child]:
        """Everything of ``service`` but the MultimodalService itself."""
        return [one for key, one in self._objects.get(service, {}).items() if key.kind != KIND]

    def child(self, service: ServiceKey, key: ObjectKey) -> Child | None:
        """One object of ``service``."""
        return self._objects.get(service, {}).get(key)

    def of_kind(self, kind: str) -> Iterator[tuple[ServiceKey, Child]]:
        """Every object of one kind. The store must not change meanwhile."""
        for service, objects in self._objects.items():
            for key, child in objects.items():
                if key.kind == kind:
                    yield service, child

    def services(self) -> list[ServiceKey]:
        """Every resource that exists."""
        return [key for key, objects in self._objects.items() if ObjectKey(KIND, *key) in objects]

    def _count_change(self, service: ServiceKey) -> None:
        self._changes += 1
        self._revisions[service] = self._changes


def service_of(kind: str, body: Object) -> ServiceKey:
    """The resource that an object is, or belongs to: by its owner, or by its label when it has
    none of ours, as pods do not. A child that is labelled as another's is still its owner's."""
    metadata = body["metadata"]
    if kind == KIND:
        return ServiceKey(metadata["namespace"], metadata["name"])
    owners = (one["name"] for one in metadata.get("ownerReferences", ()) if one["kind"] == KIND)
    return ServiceKey(metadata["namespace"], next(owners, metadata["labels"][naming.INSTANCE]))


def key_of(kind: str, body: Object) -> ObjectKey:
    """Which object ``body`` is."""
    metadata = body["metadata"]
    # Most names are those of several objects, of which each would keep a text of its own.
    return ObjectKey(kind, sys.intern(metadata["namespace"]), sys.intern(metadata["name"]))


def belongs(kind: str, body: Object) -> bool:
    """Whether an object is a resource, or labelled as belonging to one."""
    return kind == KIND or naming.INSTANCE in body["metadata"].get("labels", {})


def version_of(body: Object) -> int:
    """The resourceVersion. Comparable as a number: Kubernetes promises so since 1.35, and etcd's
    revisions always were."""
    return int(body["metadata"].get("resourceVersion") or 0)


def is_rolled_out(deployment: Object) -> bool:
    """Whether its controller has seen a Deployment as it is, and counts as many pods of its version
    as it wants, all ready, and no others. It counts those that the Deployment owns alone: never the
    pods of a predecessor of the same name, but those that it has adopted."""
    status, wanted = deployment.get("status", {}), deployment.get("spec", {}).get("replicas", 1)
    counts = {status.get(field, 0) for field in _POD_COUNTS}
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return seen and counts == {wanted}


def _says_the_same(known: Child, child: Child) -> bool:
    """Whether a newer version of an object has nothing new in it."""
    older, newer = ((one.uid, one.rolled_out, one.packed) for one in (known, child))
    return older == newer


def _reduced(kind: str, body: Object) -> Object:
    metadata = {field: body["metadata"][field] for field in _METADATA if field in body["metadata"]}
    if kind in _KEEP_GENERATION:
        metadata["generation"] = body["metadata"].get("generation", 0)
    kept = {
        name: value
        for name, value in body.items()
        if name not in ("metadata", "status", "apiVersion", "kind")
    }
    if kind == "Pod":
        kept.pop("spec", None)
    if kind in _STATUS_KINDS and "status" in body:
        kept["status"] = _status(kind, body["status"])
    return {**kept, "metadata": metadata}


def _status(kind: str, status: Object) -> Object:
    if kind == KIND:
        return status
    fields: Iterable[str] = _POD_STATUS if kind == "Pod" else ("conditions",)
    return {name: _timeless(status[name]) for name in fields if name in status}


def _timeless(value: Any) -> Any:
    if isinstance(value, list):
        return [_timeless(one) for one in value]
    if isinstance(value, dict):
        return {name: _timeless(one) for name, one in value.items() if name not in _TIMES}
    return value


def _replicas_ours(fields: Iterable[Object]) -> bool:
    """Whether ``spec.replicas`` is set by our applies alone, so that to leave it out resets it."""
    owners = {
        (entry.get("manager"), entry.get("operation"))
        for entry in fields
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    }
    return owners == {(naming.MANAGER, "Apply")}
