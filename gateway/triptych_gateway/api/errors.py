"""Errors in OpenAI's shape. The one table between the error tree and HTTP."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from triptych_contract.errors import InvalidRequest, Reason, TriptychError


class InvalidParameter(InvalidRequest):
    """A field of the request is malformed or not supported; ``parameter`` is its path."""

    def __init__(self, message: str, parameter: str | None) -> None:
        super().__init__(message)
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, ``type`` and ``code`` of one kind of error."""

    status: int
    kind: str
    code: str


_INVALID: Final = "invalid_request_error"
_SERVER: Final = "server_error"

ANSWERS: Final[Mapping[Reason, Answer]] = {
    Reason.INVALID_REQUEST: Answer(400, _INVALID, "invalid_request"),
    Reason.PROMPT_TOO_LONG: Answer(400, _INVALID, "context_length_exceeded"),
    Reason.TOO_LARGE: Answer(413, _INVALID, "too_large"),
    Reason.NOT_FOUND: Answer(404, _INVALID, "model_not_found"),
    Reason.MEDIA_UNKNOWN: Answer(404, _INVALID, "media_not_found"),
    Reason.MEDIA_CONFLICT: Answer(409, _INVALID, "media_conflict"),
    Reason.OVERLOADED: Answer(429, "rate_limit_error", "overloaded"),
    Reason.UNAVAILABLE: Answer(503, _SERVER, "unavailable"),
    Reason.LEASE_EXPIRED: Answer(503, _SERVER, "unavailable"),
    Reason.FINGERPRINT_MISMATCH: Answer(503, _SERVER, "unavailable"),
    Reason.TRANSFER_CORRUPTED: Answer(503, _SERVER, "unavailable"),
    Reason.INVALID_MODEL: Answer(503, _SERVER, "unavailable"),
    Reason.DEADLINE_EXCEEDED: Answer(504, "timeout_error", "deadline_exceeded"),
    Reason.NON_FINITE: Answer(500, _SERVER, "non_finite"),
    Reason.INTERNAL: Answer(500, _SERVER, "internal_error"),
}
_RETRY_LATER: Final = frozenset({429, 503})


def status_of(error: TriptychError) -> int:
    """The HTTP status of ``error``."""
    return ANSWERS[error.reason].status


def body_of(error: TriptychError) -> dict[str, object]:
    """The JSON body of ``error``, also sent as an event when a stream has begun."""
    answer = ANSWERS[error.reason]
    return {
        "error": {
            "message": error.message,
            "type": answer.kind,
            "param": getattr(error, "parameter", None),
            "code": answer.code,
        }
    }


def headers_of(error: TriptychError) -> dict[str, str]:
    """``Retry-After`` where coming back helps."""
    if status_of(error) not in _RETRY_LATER:
        return {}
    return {"retry-after": str(max(1, math.ceil(error.retry_after)))}
