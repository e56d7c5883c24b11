"""The one tree of errors, and the one table between it and gRPC status codes.

::

    TriptychError
    ├── RetryableError          the same request may succeed, here later or elsewhere now
    │   ├── Overloaded          a bound is reached; `retry_after` says when to come back
    │   ├── Unavailable         a peer or tier is down or draining
    │   ├── DeadlineExceeded    time ran out before the work was done
    │   ├── LeaseExpired        the handle is no longer held; make a new one
    │   ├── FingerprintMismatch the tensor was made by another encoder or language model
    │   └── TransferCorrupted   what arrived is not what was sent
    └── TerminalError           the same request fails again; change it
        ├── InvalidRequest      400
        ├── PromptTooLong       400
        ├── TooLarge            413
        ├── NotFound            404
        ├── MediaUnknown        404, media named by a uuid that is not known (any more): send it
        ├── MediaConflict       409, a uuid that stands for other media
        ├── InvalidModel        a model folder cannot be served
        ├── NonFinite           the model answered NaN or infinity
        └── InternalError       a bug of ours
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final

import grpc

from triptych_contract.v1.common_pb2 import ErrorDetail


class Reason(StrEnum):
    """Machine-readable cause of an error; also the ``outcome`` label of the request metrics."""

    OVERLOADED = "Overloaded"
    UNAVAILABLE = "Unavailable"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    LEASE_EXPIRED = "LeaseExpired"
    FINGERPRINT_MISMATCH = "FingerprintMismatch"
    TRANSFER_CORRUPTED = "TransferCorrupted"
    INVALID_REQUEST = "InvalidRequest"
    PROMPT_TOO_LONG = "PromptTooLong"
    TOO_LARGE = "TooLarge"
    NOT_FOUND = "NotFound"
    MEDIA_UNKNOWN = "MediaUnknown"
    MEDIA_CONFLICT = "MediaConflict"
    INVALID_MODEL = "InvalidModel"
    NON_FINITE = "NonFinite"
    INTERNAL = "Internal"


class TriptychError(Exception):
    """Base of all errors that cross a boundary. The message says what to do about it."""

    reason: ClassVar[Reason] = Reason.INTERNAL
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.message: Final = message
        self.retry_after: Final = retry_after  # seconds; 0 is no hint


class RetryableError(TriptychError):
    """The same request may succeed, here later or elsewhere now."""

    retryable = True


class TerminalError(TriptychError):
    """The same request fails again."""


class Overloaded(RetryableError):
    """A bound is reached; come back after ``retry_after`` seconds."""

    reason = Reason.OVERLOADED


class Unavailable(RetryableError):
    """A peer or a tier is down, draining or unreachable."""

    reason = Reason.UNAVAILABLE


class DeadlineExceeded(RetryableError):
    """Time ran out before the work was done."""

    reason = Reason.DEADLINE_EXCEEDED


class LeaseExpired(RetryableError):
    """The handle's tensor is no longer held for it."""

    reason = Reason.LEASE_EXPIRED


class FingerprintMismatch(RetryableError):
    """The tensor was made by another encoder or language model than this receiver's."""

    reason = Reason.FINGERPRINT_MISMATCH


class TransferCorrupted(RetryableError):
    """Length, shape or checksum of what arrived differs from what was announced."""

    reason = Reason.TRANSFER_CORRUPTED


class InvalidRequest(TerminalError):
    """The request is malformed."""

    reason = Reason.INVALID_REQUEST


class PromptTooLong(TerminalError):
    """Prompt and answer do not fit the model's context or the tier's memory."""

    reason = Reason.PROMPT_TOO_LONG


class TooLarge(TerminalError):
    """A body, picture or tensor exceeds a size limit."""

    reason = Reason.TOO_LARGE


class NotFound(TerminalError):
    """The named thing does not exist."""

    reason = Reason.NOT_FOUND


class MediaUnknown(TerminalError):
    """Media is named by a uuid alone, under which nothing is kept; send its content."""

    reason = Reason.MEDIA_UNKNOWN


class MediaConflict(TerminalError):
    """A uuid comes with other content than it stands for."""

    reason = Reason.MEDIA_CONFLICT


class InvalidModel(TerminalError):
    """A model folder is incomplete, damaged or of an unknown family."""

    reason = Reason.INVALID_MODEL


class NonFinite(TerminalError):
    """The model produced NaN or infinity for this input; it is neither cached nor served."""

    reason = Reason.NON_FINITE


class InternalError(TerminalError):
    """A bug of ours."""

    reason = Reason.INTERNAL


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
