"""The one tree of errors. ``statuses`` says how they cross gRPC.

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
