"""Makes what stands in the cluster what is wanted: server-side apply, then prune.

Nothing is written that is as wanted already. What was written is put into the store from the
server's answer, so that the next look does not depend on when the watch tells of it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from triptych_operator.api.service import KIND, MultimodalService
from triptych_operator.cluster.answers import Object
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.kinds import BY_NAME, DEPLOYMENT, POD
from triptych_operator.cluster.refusals import CONFLICT, NOT_FOUND, Refusal
from triptych_operator.desired import naming
from triptych_operator.desired.difference import APPLIED, is_as_wanted
from triptych_operator.json_values import JsonObject
from triptych_operator.observed.store import Child, ObjectKey, ServiceKey, Store, key_of, version_of

_logger = logging.getLogger(__name__)

# No object ever has this version: the API server takes a manifest that names it for one of an
# object that is not there yet, and answers with a conflict if it is, whoever made it.
_NOT_THERE: Final = "1"
# Who owns a Deployment's replicas between us and the first change by an autoscaler.
HANDOVER: Final = "triptych-handover"


class Applier:
    """Writes children. ``store`` tells what stands, and learns what was written.

    Args:
        changed: called with a resource of which a child was changed by others while we wrote it.
    """

    def __init__(self, api: Api, store: Store, changed: Callable[[ServiceKey], None]) -> None:
        self._api = api
        self._store = store
        self._changed = changed
        # Children that need no second look: each was found as wanted, or is what the server made
        # of what was sent. Hashes of what was wanted and what stood, by resource.
        self._settled: dict[ServiceKey, dict[ObjectKey, int]] = {}

    async def apply(self, service: MultimodalService, manifests: Sequence[JsonObject]) -> None:
        """Applies what is not as wanted: kind after kind, the children of one kind together.

        Args:
            manifests: sealed (``desired.difference``), ordered by kind.

        Raises:
            Refusal: the first of the answers that were refusals; the others of its kind were tried.
        """
        await self._clear_previous(service, manifests)
        for kind, group in itertools.groupby(manifests, lambda manifest: manifest["kind"]):
            written: list[str] = []
            try:
                await _all([self._apply_one(service, manifest, written) for manifest in group])
            finally:
                if written:
                    namespace = service.metadata.namespace
                    _logger.info("applied %s %s in %s", kind, ", ".join(written), namespace)

    def forget(self, service: ServiceKey) -> None:
        """Drops what is known of a resource that is gone."""
        self._settled.pop(service, None)

    async def prune(
        self, service: MultimodalService, wanted: Sequence[JsonObject], keep: Collection[str]
    ) -> None:
        """Deletes children that are not ``wanted``, but those of the tiers ``keep``."""
        names = {key_of(str(manifest["kind"]), manifest) for manifest in wanted}
        unwanted = []
        for child in self._store.children(_service_key(service)):
            if child.key in names or child.key.kind == "Pod":
                continue
            body = child.body()
            metadata = body["metadata"]
            ours = _owner(body) == service.metadata.uid
            if (
                ours
                and "deletionTimestamp" not in metadata
                and metadata["labels"].get(naming.COMPONENT) not in keep
            ):
                unwanted.append(child)
        await _all([self._delete(service, child) for child in unwanted])

    async def admit(self, service: ServiceKey, name: str, now: str) -> None:
        """Lets a pod pass the gate of a rollout; nothing when it is gone.

        Args:
            now: RFC 3339.
        """
        child = self._store.child(service, ObjectKey(POD.name, service.namespace, name))
        if child is None:
            return
        passed = {"type": naming.IN_SERVICE, "status": "True", "lastTransitionTime": now}
        manifest = {
            "apiVersion": POD.api_version,
            "kind": POD.name,
            "metadata": {"namespace": service.namespace, "name": name, "uid": child.uid},
            "status": {"conditions": [passed]},
        }
        try:
            answer = await self._api.apply(POD, manifest, subresource="status")
        except Refusal as refused:
            if refused.status not in (NOT_FOUND, CONFLICT):
                raise
            return
        self._store.put(POD.name, answer)

    async def _apply_one(
        self, service: MultimodalService, manifest: JsonObject, written: list[str]
    ) -> None:
        key = key_of(str(manifest["kind"]), manifest)
        child = self._store.child(_service_key(service), key)
        if child is None:
            with self._store.writing(_service_key(service), key):
                answer = await self._create(service, key, manifest)
                self._learn(service, key, manifest, answer)
            written.append(key.name)
            return
        if self._is_settled(service, manifest, child):
            return
        body = child.body()
        owner = _owner(body)
        if owner not in ("", service.metadata.uid):
            raise _previous(child.key) if _is_previous(service, body) else _taken(child.key)
        if is_as_wanted(manifest, body):
            self._settle(service, manifest, child)
            return
        if child.replicas_ours and "replicas" not in _spec(manifest):
            await self._hand_over_replicas(key, body)
        with self._store.writing(_service_key(service), key):
            answer = await self._api.apply(BY_NAME[key.kind], manifest)
            self._learn(service, key, manifest, answer)
        written.append(key.name)

    async def _create(
        self, service: MultimodalService, key: ObjectKey, manifest: JsonObject
    ) -> Object:
        kind = BY_NAME[key.kind]
        try:
            return await self._api.apply(kind, _made_new(manifest))
        except Refusal as refused:
            # A name that is taken, or a child of ours whose labels somebody has changed.
            if refused.status != CONFLICT or not await self._is_ours(service, key):
                raise
            return await self._api.apply(kind, manifest)

    async def _is_ours(self, service: MultimodalService, key: ObjectKey) -> bool:
        """Whether the object stands already and is ours.

        Raises:
            Refusal: it is somebody else's.
        """
        found = await self._api.find(BY_NAME[key.kind], key.namespace, key.name)
        if found is not None and _owner(found) != service.metadata.uid:
            raise _taken(key)
        return found is not None

    async def _clear_previous(
        self, service: MultimodalService, manifests: Sequence[JsonObject]
    ) -> None:
        """Deletes the children of a resource of the same name that is gone, all of them at once:
        kind after kind, each would take another look, later than the last.

        Raises:
            Refusal: there were some, and new ones have to wait for that.
        """
        found = []
        for manifest in manifests:
            key = key_of(str(manifest["kind"]), manifest)
            child = self._store.child(_service_key(service), key)
            if child is None or self._is_settled(service, manifest, child):
                continue
            if _is_previous(service, child.body()):
                found.append(child)
        await _all([self._delete(service, child) for child in found])
        if found:
            raise _previous(found[0].key)

    async def _hand_over_replicas(self, key: ObjectKey, body: Object) -> None:
        """Lets go of ``replicas`` without a dip. To leave out what nobody else owns would reset
        it to 1, so the number that stands gets another owner first."""
        manifest = {
            "apiVersion": DEPLOYMENT.api_version,
            "kind": DEPLOYMENT.name,
            "metadata": {"namespace": key.namespace, "name": key.name},
            "spec": {"replicas": body["spec"].get("replicas", 1)},
        }
        await self._api.apply(DEPLOYMENT, manifest, manager=HANDOVER)

    async def _delete(self, service: MultimodalService, child: Child) -> None:
        key = child.key
        await self._api.delete(BY_NAME[key.kind], key.namespace, key.name, child.uid)
        self._store.forget(_service_key(service), key)
        self._settled.get(_service_key(service), {}).pop(key, None)
        _logger.info("deleted %s", _named(key))

    def _learn(
        self, service: MultimodalService, key: ObjectKey, manifest: JsonObject, answer: Object
    ) -> None:
        """What the server made of what was sent is as wanted, in whichever form it keeps that."""
        self._store.put(key.kind, answer)
        child = self._store.child(_service_key(service), key)
        if child is not None and child.version == version_of(answer):
            self._settle(service, manifest, child)
        else:
            self._changed(_service_key(service))

    def _settle(self, service: MultimodalService, manifest: JsonObject, child: Child) -> None:
        settled = self._settled.setdefault(_service_key(service), {})
        settled[child.key] = _seen(manifest, child)

    def _is_settled(self, service: MultimodalService, manifest: JsonObject, child: Child) -> bool:
        settled = self._settled.get(_service_key(service), {})
        return settled.get(child.key) == _seen(manifest, child)


async def _all(calls: Collection[Awaitable[None]]) -> None:
    """Waits for all, and raises the first of what they raised."""
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer


def _service_key(service: MultimodalService) -> ServiceKey:
    return ServiceKey(service.metadata.namespace, service.metadata.name)


def _controller(body: Object) -> Object:
    owners = body["metadata"].get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("controller")), {})


def _owner(body: Object) -> str:
    return str(_controller(body).get("uid", ""))


def _is_previous(service: MultimodalService, body: Object) -> bool:
    controller = _controller(body)
    named = (controller.get("kind"), controller.get("name")) == (KIND, service.metadata.name)
    return named and controller.get("uid") != service.metadata.uid


def _spec(manifest: JsonObject) -> JsonObject:
    spec = manifest.get("spec")
    return spec if isinstance(spec, dict) else {}


def _made_new(manifest: Object) -> Object:
    """The manifest for an object that must not exist yet."""
    return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": _NOT_THERE}}


def _seen(manifest: Object, child: Child) -> int:
    return hash((manifest["metadata"]["annotations"][APPLIED], child.packed))


def _named(key: ObjectKey) -> str:
    return f"{key.kind} {key.namespace}/{key.name}"


def _previous(key: ObjectKey) -> Refusal:
    return Refusal(CONFLICT, "PreviousExists", f"waits for {_named(key)} to be deleted")


def _taken(key: ObjectKey) -> Refusal:
    return Refusal(
        CONFLICT,
        "NameTaken",
        f"{_named(key)} exists and belongs to somebody else: rename the MultimodalService, "
        "or delete that object",
    )
