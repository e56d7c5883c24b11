"""The API server over HTTP, for tests that ask it often: kubectl costs a process each time."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import yaml

TIMEOUT_SECONDS: Final = 30.0
LINE_BYTES: Final = 4 * 1024 * 1024  # the longest event of a watch

Object = dict[str, Any]  # as the API server hands it out


@dataclass(frozen=True)
class Endpoint:
    """Where an API server is and how to authenticate, out of a kubeconfig."""

    url: str
    tls: ssl.SSLContext | None
    headers: Mapping[str, str]

    @staticmethod
    def of(kubeconfig: Path) -> Endpoint:
        """The endpoint of the current context: by client certificate, token, or neither."""
        config = yaml.safe_load(kubeconfig.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        secure = cluster["server"].startswith("https:")
        return Endpoint(cluster["server"], _tls(cluster, user) if secure else None, headers)

    def session(self) -> aiohttp.ClientSession:
        """A session that authenticates; to be closed by whoever asks for it."""
        connector = aiohttp.TCPConnector(ssl=self.tls or True, limit=0)
        return aiohttp.ClientSession(
            connector=connector,
            headers=self.headers,
            read_bufsize=LINE_BYTES,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_SECONDS),
        )


class ApiError(Exception):
    """The API server refused a call; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP status {status}: {message}")
        self.status = status


class Api:
    """Calls by path, such as ``/api/v1/namespaces/N/pods``. Use as an async context manager."""

    def __init__(self, kubeconfig: Path) -> None:
        self._endpoint = Endpoint.of(kubeconfig)
        self.url = self._endpoint.url

    async def __aenter__(self) -> Self:
        self._session = self._endpoint.session()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str) -> Object:
        """An object, or a list of them.

        Raises:
            ApiError: there is none, or it may not be read.
        """
        return await self._call("GET", path)

    async def find(self, path: str) -> Object | None:
        """An object, or ``None`` where there is none."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def items(self, path: str) -> list[Object]:
        """The objects of a list."""
        found: list[Object] = (await self.get(path))["items"]
        return found

    async def create(
        self, path: str, manifest: Mapping[str, Any], *, dry_run: bool = False
    ) -> Object:
        """Creates an object in the collection at ``path``, as kubectl does: no unknown fields."""
        query = "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        return await self._call("POST", path + query, manifest)

    async def replace(self, path: str, manifest: Mapping[str, Any]) -> Object:
        """Replaces the object at ``path``; fields that are not given are gone."""
        return await self._call("PUT", path, manifest)

    async def merge(self, path: str, change: Mapping[str, Any]) -> Object:
        """Changes the object at ``path`` by a JSON merge patch: ``None`` removes a field."""
        return await self._call("PATCH", path, change, content="application/merge-patch+json")

    async def apply(
        self, path: str, manifest: Mapping[str, Any], *, manager: str, dry_run: bool = False
    ) -> Object:
        """Server-side apply of the object at ``path`` by ``manager``, with force."""
        query = f"?fieldManager={manager}&force=true" + ("&dryRun=All" if dry_run else "")
        return await self._call(
            "PATCH", path + query, manifest, content="application/apply-patch+yaml"
        )

    async def delete(self, path: str) -> None:
        """Deletes what is at ``path``; its dependents go in the background."""
        await self._call("DELETE", path, {"propagationPolicy": "Background"})

    async def watch(self, path: str, *, since: str = "") -> AsyncIterator[Object]:
        """Events of the collection at ``path`` until the server ends the stream."""
        query = f"?watch=true&allowWatchBookmarks=true&resourceVersion={since}"
        async with self._session.get(self._endpoint.url + path + query) as answer:
            await _check(answer)
            async for line in answer.content:
                yield json.loads(line)

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content: str = "application/json",
    ) -> Object:
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            self._session.request(
                method,
                self._endpoint.url + path,
                data=json.dumps(body) if body is not None else None,
                headers={"Content-Type": content, "Accept": "application/json"},
            ) as answer,
        ):
            await _check(answer)
            found: Object = await answer.json()
            return found


async def _check(answer: aiohttp.ClientResponse) -> None:
    if answer.status >= 400:
        text = await answer.text()
        raise ApiError(answer.status, f"{answer.method} {answer.url.path}: {text[:1000]}")


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _tls(cluster: Mapping[str, str], user: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"),
        cadata=_decoded(cluster, "certificate-authority-data") or None,
    )
    if "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile("w") as pair:  # ssl reads certificates from files alone
            pair.write(_decoded(user, "client-certificate-data"))
            pair.write(_decoded(user, "client-key-data"))
            pair.flush()
            context.load_cert_chain(pair.name)
    elif "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    return context


def _decoded(entry: Mapping[str, str], key: str) -> str:
    return base64.b64decode(entry.get(key, "")).decode()
