"""While a gateway drains, every response asks its client to connect anew: to another gateway.

A client keeps its connection for the next request. When the process then ends, that request meets
a connection that has just been closed, and is lost although another gateway would have served it.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ClosingWhileDraining:
    """Wraps an application; ``draining`` tells whether it is time to part."""

    def __init__(self, app: ASGIApp, draining: Callable[[], bool]) -> None:
        self._app = app
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""

        async def send_parting(message: Message) -> None:
            if message["type"] == "http.response.start" and self._draining():
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_parting)
