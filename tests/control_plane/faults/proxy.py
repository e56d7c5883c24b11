"""Stands between one operator and the API server, and does to them what a test wants.

The operator speaks plain HTTP to it, by a kubeconfig of the proxy's; the proxy speaks to the server
by the operator's own credentials. It counts writes, springs a trap at one of them, and lets faults
of answers and watches come and go while it runs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final, Self

import aiohttp
from aiohttp import web
from cluster.api import LINE_BYTES, Endpoint
from control_plane.faults.answers import Answers, list_key
from control_plane.faults.calls import WRITES, Answer, Call
from control_plane.faults.watches import StreamEnded, Watches
from yarl import URL

# Made anew by each side of the proxy.
_HOP: Final = frozenset(
    {"host", "connection", "transfer-encoding", "content-length", "authorization"}
    | {"accept-encoding", "content-encoding"}
)


class When(Enum):
    """On which side of a write a trap springs; either way its answer is lost."""

    BEFORE = auto()  # the server never hears of it
    AFTER = auto()  # the server has done it


@dataclass(frozen=True)
class Trap:
    """Springs at one write: awaits ``spring``, after which the connection is cut.

    With ``closes`` the proxy serves nothing more until it is opened again, so that what a killed
    operator had sent meanwhile does not get through.
    """

    number: int
    when: When
    spring: Callable[[], Awaitable[None]]
    closes: bool = True


class FaultProxy:
    """Use as an async context manager. ``answers``, ``watches`` and ``trap`` may be set at any
    time, and hold from the next call or event on."""

    def __init__(self, upstream: Path, folder: Path) -> None:
        self._endpoint = Endpoint.of(upstream)
        self.kubeconfig = folder / "proxy.kubeconfig"
        self.answers = Answers()
        self.watches = Watches()
        self.trap: Trap | None = None
        self.writes: list[Call] = []
        self.lists: dict[str, Answer] = {}  # the first answer to each list
        self._streams: dict[web.StreamResponse, asyncio.Task[None]] = {}
        self._closed = False
        self._calls: set[asyncio.Task[web.StreamResponse]] = set()

    async def __aenter__(self) -> Self:
        self._session = self._endpoint.session()
        app = web.Application(client_max_size=LINE_BYTES)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self._write_kubeconfig(f"http://{host}:{port}")
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._calls:
            task.cancel()
        await self._runner.cleanup()
        await self._session.close()

    def heal(self) -> None:
        """Ends all faults, and serves again after a trap has closed it."""
        self.answers, self.watches, self.trap, self._closed = Answers(), Watches(), None, False

    @property
    def streams(self) -> int:
        """How many watches are open."""
        return len(self._streams)

    async def interrupt(self, last: bytes = b"") -> None:
        """Ends every open watch, silent ones too, after a ``last`` event if one is given."""
        streams, self._streams = self._streams, {}
        for stream, relaying in streams.items():
            if last:
                await stream.write(last)
            relaying.cancel()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") in ("1", "true"):
            return await self._watch(request, self._seen(request))
        # A write that the server has been handed goes on when the operator dies meanwhile.
        task = asyncio.create_task(self._answer(request, self._seen(request)))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return await asyncio.shield(task)

    def _seen(self, request: web.Request) -> Call:
        writes = request.method in WRITES
        call = Call(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            accept=request.headers.get("Accept", ""),
            number=len(self.writes) + 1 if writes else 0,
        )
        if writes:
            self.writes.append(call)
        return call

    async def _answer(self, request: web.Request, call: Call) -> web.StreamResponse:
        if self._closed:
            return _cut(request)
        trap = self.trap if self.trap and call.number == self.trap.number else None
        if trap and trap.when is When.BEFORE:
            return await self._sprung(request, trap)
        body = await request.read()
        instead = await self.answers.instead(call)
        answer = instead or await self._forward(request, body)
        if call.lists and instead is None:
            self.lists.setdefault(list_key(call), answer)
        if trap:
            return await self._sprung(request, trap)
        return _response(answer)

    async def _sprung(self, request: web.Request, trap: Trap) -> web.StreamResponse:
        self.trap, self._closed = None, trap.closes
        await trap.spring()
        return _cut(request)

    async def _forward(self, request: web.Request, body: bytes) -> Answer:
        async with self._session.request(
            request.method, self._url(request), headers=_kept(request.headers), data=body or None
        ) as answer:
            return Answer(answer.status, _kept(answer.headers), await answer.read())

    async def _watch(self, request: web.Request, call: Call) -> web.StreamResponse:
        if self._closed:
            return _cut(request)
        instead = await self.answers.instead(call)
        if instead is not None:
            return _response(instead)
        async with self._session.get(self._url(request), headers=_kept(request.headers)) as events:
            if events.status != 200:
                return _response(Answer(events.status, _kept(events.headers), await events.read()))
            stream = web.StreamResponse(headers=_kept(events.headers))
            await stream.prepare(request)
            relaying = asyncio.create_task(self._relay(call.plural, events, stream))
            self._streams[stream] = relaying
            try:
                await asyncio.wait([relaying])
            finally:
                self._streams.pop(stream, None)
                relaying.cancel()
            if not relaying.cancelled():
                relaying.result()
            return stream

    async def _relay(
        self, plural: str, events: aiohttp.ClientResponse, stream: web.StreamResponse
    ) -> None:
        with suppress(StreamEnded, OSError, aiohttp.ClientError):  # either side may end it
            async for line in events.content:
                await self.watches.relay(plural, line, stream.write)

    def _url(self, request: web.Request) -> URL:
        return URL(self._endpoint.url + request.rel_url.raw_path_qs, encoded=True)

    def _write_kubeconfig(self, url: str) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": url}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
            "current-context": "proxy",
        }
        self.kubeconfig.write_text(json.dumps(config))


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key.lower() not in _HOP}


def _response(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


def _cut(request: web.Request) -> web.Response:
    """Ends the client's connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)  # goes nowhere
