"""The one way an error crosses gRPC: status, message, and an ``ErrorDetail`` beside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NoReturn, Protocol

import grpc
from google.protobuf.message import DecodeError, Message

from triptych_contract.errors import TriptychError
from triptych_contract.names import ERROR_METADATA
from triptych_contract.statuses import GRPC_STATUS, from_detail, from_status, to_detail
from triptych_contract.v1.common_pb2 import ErrorDetail

# The message travels twice, as details (percent-encoded, so up to thrice as long) and in the
# metadata, of which peers refuse more than 8 KiB.
_MAX_MESSAGE_BYTES: Final = 1024


class Failure(Protocol):
    """How a call ended: what ``grpc.aio.AioRpcError`` and the calls of blocking gRPC both say."""

    def code(self) -> grpc.StatusCode:
        """The status."""
        ...

    def details(self) -> str | None:
        """The message."""
        ...

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """What came with the status."""
        ...


def error_from_rpc(error: Failure) -> TriptychError:
    """The error that the peer meant, or what its status alone says."""
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_METADATA and isinstance(value, bytes):
            try:
                return from_detail(ErrorDetail.FromString(value))
            except DecodeError:
                break  # not our peer's: the status still says something
    return from_status(error.code(), error.details() or f"the peer answered {error.code().name}")


async def abort_with(
    context: grpc.aio.ServicerContext[Message, Message], error: TriptychError
) -> NoReturn:
    """Ends the call with ``error``; never returns.

    Raises:
        grpc.aio.AbortError: always, as gRPC ends a call.
    """
    code, message, metadata = abortion(error)
    await context.abort(code, message, metadata)
    raise AssertionError("abort returned")


def abortion(
    error: TriptychError,
) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """Status, message and trailing metadata that carry ``error``, for either kind of server."""
    message = _shortened(error.message)
    detail = to_detail(type(error)(message, retry_after=error.retry_after))
    return GRPC_STATUS[error.reason], message, ((ERROR_METADATA, detail.SerializeToString()),)


def _shortened(message: str) -> str:
    encoded = message.encode(errors="replace")
    if len(encoded) <= _MAX_MESSAGE_BYTES:
        return encoded.decode()
    return encoded[: _MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "..."
