"""An API server in memory, for tests of what talks to one: no cluster, answers in milliseconds.

Objects by path, resourceVersions, server-side apply with owners of fields, optimistic locks,
preconditions of deletions, lists in pages. Faults are added as functions that answer instead.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from aiohttp import web
from server_side_apply import Applied, Conflict
from triptych_operator.cluster.kinds import (
    BY_NAME,
    ENDPOINT_SLICE,
    EVENT,
    LEASE,
    METRICS_API,
    SERVICE_RESOURCE,
    Kind,
)

_OTHERS: Final = (ENDPOINT_SLICE, EVENT, LEASE, METRICS_API)
KINDS: Final = {kind.plural: kind for kind in (*BY_NAME.values(), *_OTHERS)}

Object = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One call: ``name`` is empty for a collection, ``namespace`` for all of them."""

    method: str
    kind: Kind
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any

    @property
    def text(self) -> str:
        """Such as ``PATCH Deployment shapes-decode``."""
        parts = (self.method, self.kind.name, self.name, self.subresource)
        return " ".join(part for part in parts if part)


Fault = Callable[[Call], Awaitable[web.StreamResponse | None]]


@dataclass
class ApiServer:
    """Serves while inside an ``async with``. ``calls`` has all calls in order."""

    objects: dict[tuple[str, str, str], Applied] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    version: int = 100
    kubernetes: str = "v1.36.3"
    url: str = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/version", self._version)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig file by which to reach it."""
        path = folder / "kubeconfig"
        context = {"cluster": "test", "user": "test"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "test", "user": {"token": "secret"}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config))
        return path

    @property
    def writes(self) -> list[str]:
        """All calls that are no reads, in order."""
        return [call.text for call in self.calls if call.method != "GET"]

    def put(self, kind: Kind, manifest: Mapping[str, Any], *, manager: str = "kubectl") -> Object:
        """Has ``manager`` apply an object, by no call."""
        metadata = manifest["metadata"]
        key = (kind.name, metadata.get("namespace", ""), metadata["name"])
        return self._apply(key, kind, manifest, manager, force=True)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """An object as it stands."""
        found = self.objects.get((kind.name, namespace, name))
        return found.body if found else None

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """Deletes an object, by no call."""
        del self.objects[kind.name, namespace, name]
        self.version += 1

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"gitVersion": self.kubernetes})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        call = await _call(request)
        self.calls.append(call)
        for fault in list(self.faults):
            answer = await fault(call)
            if answer is not None:
                return answer
        if not call.name:
            return self._list(call) if call.method == "GET" else self._create(call)
        return self._one(call)

    def _list(self, call: Call) -> web.Response:
        found = [
            one.body
            for (kind, namespace, _), one in sorted(self.objects.items())
            if kind == call.kind.name
            and call.namespace in ("", namespace)
            and _matches(one.body, call.query.get("labelSelector", ""))
        ]
        start, limit = int(call.query.get("continue", 0)), int(call.query.get("limit", 0) or 10**6)
        page, rest = found[start : start + limit], found[start + limit :]
        if "PartialObjectMetadataList" in call.headers.get("Accept", ""):
            page = [{"metadata": one["metadata"]} for one in page]
        metadata = {"resourceVersion": str(self.version)}
        if rest:
            metadata["continue"] = str(start + limit)
        answer = {"metadata": metadata, "items": page or None}
        # As the real one writes them: in the order of the alphabet, but for its own types.
        own = "PartialObjectMetadataList" in call.headers.get("Accept", "") or (
            call.kind.group != SERVICE_RESOURCE.group
        )
        return web.json_response(answer if own else dict(sorted(answer.items())))

    def _create(self, call: Call) -> web.Response:
        key = (call.kind.name, call.namespace, call.body["metadata"]["name"])
        if key in self.objects:
            return status(409, "AlreadyExists", f"{key[2]} already exists")
        return web.json_response(self._apply(key, call.kind, call.body, "", force=True), status=201)

    def _one(self, call: Call) -> web.Response:
        key = (call.kind.name, call.namespace, call.name)
        standing = self.objects.get(key)
        if standing is None and (call.method != "PATCH" or call.subresource):
            return status(404, "NotFound", f"{call.name} not found")
        if standing is not None and call.method in ("PATCH", "PUT"):
            version = standing.body["metadata"]["resourceVersion"]
            if call.body["metadata"].get("resourceVersion", version) != version:
                return status(409, "Conflict", "the object has been modified")
        if call.method == "PATCH" or standing is None:
            return self._patch(key, call)
        if call.method == "GET":
            return web.json_response(standing.body)
        if call.method == "PUT":
            return self._replace(key, call)
        return self._delete(call, standing.body)

    def _replace(self, key: tuple[str, str, str], call: Call) -> web.Response:
        del self.objects[key]
        return web.json_response(self._apply(key, call.kind, call.body, "", force=True))

    def _delete(self, call: Call, standing: Object) -> web.Response:
        uid = standing["metadata"]["uid"]
        if (call.body.get("preconditions") or {}).get("uid", uid) != uid:
            return status(409, "Conflict", "the UID in the precondition differs")
        self.remove(call.kind, call.namespace, call.name)
        return web.json_response({"kind": "Status", "status": "Success"})

    def _patch(self, key: tuple[str, str, str], call: Call) -> web.Response:
        manager, force = call.query["fieldManager"], call.query.get("force") == "true"
        try:
            return web.json_response(self._apply(key, call.kind, call.body, manager, force=force))
        except Conflict as conflict:
            return status(409, "Conflict", f"Apply failed with 1 conflict: {conflict}")

    def _apply(
        self,
        key: tuple[str, str, str],
        kind: Kind,
        manifest: Mapping[str, Any],
        manager: str,
        *,
        force: bool,
    ) -> Object:
        self.version += 1
        standing = self.objects.get(key) or Applied.empty(kind.api_version, kind.name, self.version)
        self.objects[key] = standing.apply(manifest, manager, self.version, force=force)
        return self.objects[key].body


def status(code: int, reason: str, message: str, **headers: str) -> web.Response:
    """A refusal as the API server words it."""
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message}
    return web.json_response({**body, "code": code}, status=code, headers=headers)


def refusing(text: str, answer: Callable[[], web.StreamResponse], times: int = 10**9) -> Fault:
    """Answers the first ``times`` calls whose text begins with ``text`` by ``answer``."""
    left = times

    async def fault(call: Call) -> web.StreamResponse | None:
        nonlocal left
        if left <= 0 or not call.text.startswith(text):
            return None
        left -= 1
        return answer()

    return fault


def slow(text: str, seconds: float) -> Fault:
    """Lets calls whose text begins with ``text`` wait."""

    async def fault(call: Call) -> None:
        if call.text.startswith(text):
            await asyncio.sleep(seconds)

    return fault


async def _call(request: web.Request) -> Call:
    parts = request.path.strip("/").split("/")
    del parts[: 2 if parts[0] == "api" else 3]
    namespace = parts[1] if parts[0] == "namespaces" else ""
    rest = [*(parts[2:] if namespace else parts), "", ""]
    raw = await request.read()
    return Call(
        method=request.method,
        kind=KINDS[rest[0]],
        namespace=namespace,
        name=rest[1],
        subresource=rest[2],
        query=dict(request.query),
        headers=dict(request.headers),
        body=json.loads(raw) if raw else None,
    )


def _matches(body: Object, selector: str) -> bool:
    labels = body["metadata"].get("labels", {})
    terms = [term.partition("=") for term in selector.split(",") if term]
    return all(name in labels and (not eq or labels[name] == value) for name, eq, value in terms)
