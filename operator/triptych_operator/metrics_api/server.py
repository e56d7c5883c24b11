"""The metrics API over TLS, for the API server's front proxy alone.

Whoever has no certificate of the front proxy's authority does not get past the handshake, so no
header or token of theirs is ever read. The API server has authenticated and authorised whom it
forwards for: nothing is left to ask of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import Final, Self, cast

from aiohttp import web
from prometheus_client import Counter
from triptych_contract.errors import InvalidRequest, Unavailable

from triptych_operator.json_values import JsonObject
from triptych_operator.metrics_api import answers
from triptych_operator.metrics_api.answers import METRICS, Measured
from triptych_operator.metrics_api.certificates import Serving, server_context
from triptych_operator.metrics_api.front_proxy import FrontProxy
from triptych_operator.metrics_api.listener import TlsListener
from triptych_operator.metrics_api.selectors import parse_selector
from triptych_operator.signals.board import SignalBoard

_BODY_BYTES: Final = 4096  # no request here has any
_GROUP: Final = f"/apis/{answers.GROUP}"
_VERSION: Final = f"/apis/{answers.GROUP_VERSION}"

ASKED: Final = Counter(
    "triptych_operator_metrics_api_requests", "Answers of the metrics API", ["status"]
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class MetricsServer:
    """Serves a board. Use as an async context manager; it lets callers in once it is secured.

    Args:
        clock: the present, with its time zone.
    """

    def __init__(
        self, board: SignalBoard, host: str, port: int, clock: Callable[[], datetime]
    ) -> None:
        self._board = board
        self._address = (host, port)
        self._clock = clock
        self._front_proxy: FrontProxy | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._guarded], client_max_size=_BODY_BYTES)
        for path, answer in _FIXED.items():
            app.router.add_get(path, _fixed(answer))
        app.router.add_get(f"{_VERSION}/namespaces/{{namespace}}/{{metric}}", self._values)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        self._protocol = cast("web.Server", self._runner.server)  # ``setup`` has made it
        try:
            self._listener = TlsListener(*self._address, self._protocol)
        except Unavailable:
            await self._runner.cleanup()
            raise
        self.port: int = self._listener.port
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.close()
        await self._runner.cleanup()

    def secure(self, serving: Serving, front_proxy: FrontProxy) -> None:
        """From now on serves as ``serving``, to ``front_proxy``. Connections stay, unless they are
        those of another front proxy."""
        self._listener.context = server_context(serving, front_proxy.authorities)
        if front_proxy != self._front_proxy:
            for connection in self._protocol.connections:
                connection.force_close()
        self._front_proxy = front_proxy

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses who is not the front proxy, and says what goes wrong as Kubernetes does."""
        if not self._allows(request):
            return _refusal(403, "Forbidden", "only the API server's front proxy may call")
        try:
            answer = await handler(request)
        except InvalidRequest as error:
            return _refusal(400, "BadRequest", error.message)
        except web.HTTPNotFound:
            return _refusal(404, "NotFound", f"nothing is served at {request.path}")
        except web.HTTPMethodNotAllowed:
            return _refusal(405, "MethodNotAllowed", "metrics can be read and nothing else")
        ASKED.labels(str(answer.status)).inc()
        return answer

    def _allows(self, request: web.Request) -> bool:
        if self._front_proxy is None or request.transport is None:
            return False
        return self._front_proxy.allows(request.transport.get_extra_info("peercert"))

    async def _values(self, request: web.Request) -> web.Response:
        name = request.match_info["metric"]
        if name not in METRICS:
            return _refusal(404, "NotFound", f"there is no metric {name} of Triptych")
        selector = parse_selector(request.query.get("labelSelector", ""))
        namespace = request.match_info["namespace"]
        chosen = [one for one in self._measured(name, namespace) if selector.matches(one.labels)]
        return web.json_response(answers.value_list(name, chosen))

    def _measured(self, metric: str, namespace: str) -> Iterator[Measured]:
        tier, signal = METRICS[metric]
        now = asyncio.get_running_loop().time()
        for service in sorted(self._board.services()):
            found = self._board.of(service, tier, now)
            if service.namespace == namespace and found is not None and signal in found.values:
                at = self._clock() - timedelta(seconds=now - found.at)
                yield Measured(service, tier, found.values[signal], at)


_FIXED: Final[dict[str, Callable[[], JsonObject]]] = {
    "/apis": answers.group_list,
    _GROUP: answers.group,
    _VERSION: answers.resource_list,
    "/openapi/v2": answers.open_api_v2,
    "/openapi/v3": answers.open_api_v3,
}


def _fixed(answer: Callable[[], JsonObject]) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response(answer())

    return handler


def _refusal(code: int, reason: str, message: str) -> web.Response:
    ASKED.labels(str(code)).inc()
    return web.json_response(answers.failure(code, reason, message), status=code)
