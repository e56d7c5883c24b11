from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from triptych_gateway.api.draining import ClosingWhileDraining


@pytest.mark.parametrize(("draining", "parts"), [(False, []), (True, [b"close"])])
async def test_a_response_asks_to_part_only_while_draining(
    draining: bool, parts: list[bytes]
) -> None:
    app = ClosingWhileDraining(PlainTextResponse("ok"), lambda: draining)
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    await app({"type": "http", "method": "GET", "path": "/", "headers": []}, receive, send)
    start, body = sent
    assert [value for name, value in start["headers"] if name == b"connection"] == parts
    assert body["body"] == b"ok"
