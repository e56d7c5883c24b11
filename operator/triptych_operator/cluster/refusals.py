"""What the API server answers instead of doing as asked, as errors."""

from __future__ import annotations

import json
from typing import Final

from triptych_contract.errors import TriptychError

CONFLICT: Final = 409
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
TOO_MANY_REQUESTS: Final = 429
SERVER_ERROR: Final = 500
UNREACHABLE: Final = 0  # no answer at all
_LONGEST_WAIT: Final = 60.0  # seconds that a server may have us wait
_MESSAGE_LIMIT: Final = 1024  # characters; enough to act on, and bounded in statuses and logs


class Refusal(TriptychError):
    """The API server refused a call, or could not be reached (``status`` 0).

    ``cause`` is the server's own word, such as ``Forbidden`` or ``Invalid``, to search for.
    """

    def __init__(self, status: int, cause: str, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message, retry_after=retry_after)
        self.status: Final = status
        self.cause: Final = cause

    @property
    def passes(self) -> bool:
        """Whether it may pass by itself: the server is busy, restarting, or saw another change."""
        return (
            self.status in (UNREACHABLE, CONFLICT, TOO_MANY_REQUESTS) or self.status >= SERVER_ERROR
        )


def refusal(status: int, body: bytes, what: str, retry_after: str = "") -> Refusal:
    """The error that an answer of ``status`` 400 or more stands for; ``what`` names the call."""
    cause, message = _said(body)
    return Refusal(
        status,
        cause or f"Status{status}",
        f"{what}: {message or f'HTTP status {status}'}"[:_MESSAGE_LIMIT],
        retry_after=min(_LONGEST_WAIT, float(retry_after)) if retry_after.isdecimal() else 0.0,
    )


def unreachable(what: str, error: Exception) -> Refusal:
    """The error of a call that got no answer."""
    text = str(error) or type(error).__name__
    return Refusal(
        UNREACHABLE, "ApiServerUnreachable", f"{what}: the API server does not answer: {text}"
    )


def unreadable(what: str) -> Refusal:
    """The error of an answer that no API server gives: something in between spoke."""
    return Refusal(
        UNREACHABLE, "ApiServerUnreachable", f"{what}: the answer is not an API server's"
    )


def not_leading(what: str) -> Refusal:
    """The error of a write that is not made, as it is not ours to make any more."""
    return Refusal(
        UNREACHABLE, "NotLeading", f"{what}: another replica of the operator may lead now"
    )


def _said(body: bytes) -> tuple[str, str]:
    """Reason and message of a Status object; what stands before the server may send others."""
    try:
        said = json.loads(body)
    except ValueError:
        return "", body[:_MESSAGE_LIMIT].decode(errors="replace").strip()
    if not isinstance(said, dict):
        return "", ""
    return str(said.get("reason") or ""), str(said.get("message") or "")
