"""The one table between errors and gRPC status codes, and their wire form.

Apart from the errors themselves, as whoever speaks no gRPC should not have to load it.
"""

from __future__ import annotations

from typing import Final

import grpc

from triptych_contract.errors import (
    DeadlineExceeded,
    FingerprintMismatch,
    InternalError,
    InvalidModel,
    InvalidRequest,
    LeaseExpired,
    MediaConflict,
    MediaUnknown,
    NonFinite,
    NotFound,
    Overloaded,
    PromptTooLong,
    Reason,
    TooLarge,
    TransferCorrupted,
    TriptychError,
    Unavailable,
)
from triptych_contract.v1.common_pb2 import ErrorDetail

_BY_REASON: Final[dict[str, type[TriptychError]]] = {
    kind.reason: kind
    for kind in (
        Overloaded, Unavailable, DeadlineExceeded, LeaseExpired, FingerprintMismatch,
        TransferCorrupted, InvalidRequest, PromptTooLong, TooLarge, NotFound, MediaUnknown,
        MediaConflict, InvalidModel, NonFinite, InternalError,
    )
}  # fmt: skip

GRPC_STATUS: Final[dict[Reason, grpc.StatusCode]] = {
    Reason.OVERLOADED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.LEASE_EXPIRED: grpc.StatusCode.NOT_FOUND,
    Reason.FINGERPRINT_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.TRANSFER_CORRUPTED: grpc.StatusCode.DATA_LOSS,
    Reason.INVALID_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.PROMPT_TOO_LONG: grpc.StatusCode.OUT_OF_RANGE,
    Reason.TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.MEDIA_UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Reason.MEDIA_CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    Reason.INVALID_MODEL: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NON_FINITE: grpc.StatusCode.INTERNAL,
    Reason.INTERNAL: grpc.StatusCode.INTERNAL,
}

# What a status means when the peer could not say more (a proxy, a crash, an old version).
_BY_STATUS: Final[dict[grpc.StatusCode, type[TriptychError]]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.DATA_LOSS: TransferCorrupted,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: PromptTooLong,
    # The peer's process ended, or its connection did, in the middle of the call.
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.UNKNOWN: InternalError,
}


def to_detail(error: TriptychError) -> ErrorDetail:
    """The wire form of ``error``."""
    return ErrorDetail(
        reason=error.reason,
        message=error.message,
        retryable=error.retryable,
        retry_after_ms=round(error.retry_after * 1000),
    )


def from_detail(detail: ErrorDetail) -> TriptychError:
    """The error behind ``detail``; an unknown reason keeps its message and retryability."""
    kind = _BY_REASON.get(detail.reason)
    if kind is None:
        kind = Unavailable if detail.retryable else InternalError
    return kind(detail.message, retry_after=detail.retry_after_ms / 1000)


def from_status(code: grpc.StatusCode, message: str) -> TriptychError:
    """The error for a status that came without an ``ErrorDetail``."""
    return _BY_STATUS.get(code, InternalError)(message)
