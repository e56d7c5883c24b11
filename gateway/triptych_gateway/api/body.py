"""Reading a request's body without holding more of it than is allowed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request
from triptych_contract.errors import InvalidRequest, TooLarge

from triptych_gateway.media.budget import ByteBudget


@asynccontextmanager
async def bounded_body(request: Request, limit: int, budget: ByteBudget) -> AsyncIterator[bytes]:
    """The whole body, counted against ``budget`` until the end of the ``async with``.

    Raises:
        TooLarge: announced or sent larger than ``limit``.
        Overloaded: other requests hold the budget.
        InvalidRequest: a Content-Length that is not a number.
    """
    _check_announced(request, limit)
    body = bytearray()
    try:
        async for chunk in request.stream():
            if len(body) + len(chunk) > limit:
                raise _too_large(limit)
            budget.grow(len(chunk))
            body += chunk
        yield bytes(body)
    finally:
        budget.give_back(len(body))


def _check_announced(request: Request, limit: int) -> None:
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal():
        raise InvalidRequest("Content-Length is not a number")
    if int(announced) > limit:
        raise _too_large(limit)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes; send fewer or smaller images")
