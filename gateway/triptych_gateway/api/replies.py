"""Writing replies to ASGI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from starlette.types import Send

_JSON: Final = "application/json"


async def reply_json(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    """A whole JSON reply."""
    await _start(send, status, {"content-type": _JSON, "content-length": str(len(body)), **headers})
    await send({"type": "http.response.body", "body": body})


async def reply_error(
    send: Send, status: int, body: Mapping[str, object], headers: Mapping[str, str]
) -> None:
    """An error. After 413 the connection closes: the rest of the body will not be read."""
    closing = {"connection": "close"} if status == 413 else {}
    await reply_json(send, status, json.dumps(body).encode(), {**headers, **closing})


async def start_events(send: Send, headers: Mapping[str, str]) -> None:
    """The start of a stream of server-sent events, which no proxy may hold back."""
    await _start(
        send,
        200,
        {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            **headers,
        },
    )


async def _start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
