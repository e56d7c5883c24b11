"""Calls to the API server: one server-side-apply path, and what little is read and deleted.

Objects are the server's JSON. Every call has a deadline and raises ``Refusal`` when the server
says no or says nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Self
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio.client import Configuration
from prometheus_client import Counter

from triptych_operator.cluster import connection
from triptych_operator.cluster.answers import Object, Page, parsed, split
from triptych_operator.cluster.kinds import Kind
from triptych_operator.cluster.refusals import (
    NOT_FOUND,
    Refusal,
    not_leading,
    refusal,
    unreachable,
)
from triptych_operator.desired.naming import MANAGER

CALL_SECONDS: Final = 15.0
PAGE: Final = 100  # objects of one answer to a list: more take memory, and time in one piece
METADATA_PAGE: Final = 125  # likewise, of metadata alone
CREATED: Final = 201
_NO_OTHER_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)
_ERRORS_FROM: Final = 400
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


CALLS: Final = Counter(
    "triptych_operator_api_calls", "Calls to the API server", ["verb", "kind", "status"]
)


class Api:
    """The API server. Use as an async context manager, which closes its connections.

    Args:
        may_write: asked before every write; when it says no, the write is refused here.
    """

    def __init__(
        self, configuration: Configuration, may_write: Callable[[], bool] = lambda: True
    ) -> None:
        self._configuration = configuration
        self._may_write = may_write
        self._client = connection.client(configuration)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def apply(
        self, kind: Kind, manifest: Object, *, subresource: str = "", manager: str = MANAGER
    ) -> Object:
        """Server-side apply, over values of others too; what results."""
        metadata = manifest["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"], subresource)
        query = {"fieldManager": manager, "force": "true"}
        return await self._call(
            "PATCH", kind, path, query, manifest, content="application/apply-patch+yaml"
        )

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """Makes a new object."""
        path = kind.path(manifest["metadata"]["namespace"])
        return await self._call("POST", kind, path, {"fieldManager": MANAGER}, manifest)

    async def replace(self, kind: Kind, manifest: Object) -> Object:
        """Replaces an object, if it still has the manifest's resourceVersion."""
        metadata = manifest["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"])
        return await self._call("PUT", kind, path, {"fieldManager": MANAGER}, manifest)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Deletes an object if it is still the one of ``uid``; it is fine if it has gone."""
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        try:
            await self._call("DELETE", kind, kind.path(namespace, name), {}, body)
        except Refusal as refused:
            if refused.status != NOT_FOUND:
                raise

    async def find(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """An object, or ``None`` when there is none."""
        try:
            return await self._call("GET", kind, kind.path(namespace, name), {})
        except Refusal as refused:
            if refused.status == NOT_FOUND:
                return None
            raise

    async def pages(
        self, kind: Kind, namespace: str | None, selector: str, *, metadata_only: bool = False
    ) -> AsyncIterator[Page]:
        """All objects that ``selector`` matches."""
        accept = _METADATA_ONLY if metadata_only else "application/json"
        limit = METADATA_PAGE if metadata_only else PAGE
        path, query = kind.path(namespace), {"limit": str(limit), "labelSelector": selector}
        while True:
            answer = await self._exchange("GET", kind, path, query, accept=accept)
            metadata, items = split(answer, f"GET {path}")
            yield Page(int(metadata.get("resourceVersion") or 0), items)
            query["continue"] = metadata.get("continue", "")
            if not query["continue"]:
                return

    async def read(self, path: str) -> Object:
        """What the server publishes at ``path``, such as its version or its OpenAPI document."""
        return await self._call("GET", None, path, {})

    async def text(self, path: str) -> str:
        """What stands at ``path``, such as a page of a pod through the server's proxy."""
        answer = await self._exchange("GET", None, path, {}, accept="text/plain")
        return answer.decode(errors="replace")

    async def _call(
        self,
        verb: str,
        kind: Kind | None,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        *,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Object:
        answer = await self._exchange(verb, kind, path, query, body, content=content, accept=accept)
        return parsed(answer, f"{verb} {path}")

    async def _exchange(
        self,
        verb: str,
        kind: Kind | None,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        *,
        content: str = "application/json",
        accept: str,
    ) -> bytes:
        given = {key: value for key, value in query.items() if value}
        question = f"?{urlencode(given, quote_via=quote)}" if given else ""
        url = f"{self._configuration.host}{path}{question}"
        headers = {"Accept": accept, "Content-Type": content, "User-Agent": "triptych-operator"}
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        if token:
            headers["Authorization"] = token
        what, status = f"{verb} {path}", 0
        if verb != "GET" and not self._may_write():
            raise not_leading(what)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                answer = await self._client.call_api(
                    verb, url, headers, body, _request_timeout=_NO_OTHER_TIMEOUT
                )
                content_read: bytes = await answer.read()
                status = answer.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise unreachable(what, error) from error
        finally:
            CALLS.labels(verb, kind.name if kind else "", str(status)).inc()
        if status >= _ERRORS_FROM:
            raise refusal(status, content_read, what, answer.headers.get("Retry-After", ""))
        return content_read
