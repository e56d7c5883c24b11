"""The ``grpc`` transport: raw chunks on a stream, checked while they arrive.

Works between any two hosts. Messages are bytes rather than protobuf, which would copy every chunk
twice more and is ten times slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

import grpc
import xxhash
from google.protobuf.message import DecodeError
from triptych_contract.errors import TransferCorrupted
from triptych_contract.names import TRANSFER_FETCH
from triptych_contract.rpc import Failure, error_from_rpc
from triptych_contract.v1.transfer_pb2 import TransferHeader

from triptych_worker.domain import Handle
from triptych_worker.transfer.peers import PeerChannels
from triptych_worker.transfer.transport import (
    Limit,
    Place,
    check_content,
    check_header,
    check_length,
    fetch_request,
)

CHUNK_BYTES: Final = 1024 * 1024  # small beside caches, large beside the cost of a message


class GrpcStream:
    """Pulls over ``names.TRANSFER_FETCH``."""

    name = "grpc"

    def __init__(self, channels: PeerChannels) -> None:
        self._channels = channels

    def pull(self, handle: Handle, place: Place, limit: Limit) -> None:
        """See ``Transport.pull``."""
        with self._channels.channel(handle.source) as channel:
            fetch: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
                TRANSFER_FETCH
            )
            call = fetch(fetch_request(handle).SerializeToString(), timeout=limit.remaining)
            limit.on_cancel(call.cancel)
            try:
                _receive(handle, call, place.view)
            except grpc.RpcError as error:
                raise error_from_rpc(cast(Failure, error)) from error
            finally:
                call.cancel()  # when not all was read, the holder need not send the rest

    def close(self) -> None:
        """Nothing of its own to give back."""


def chunks(content: memoryview) -> Iterator[bytes]:
    """``content`` cut into messages."""
    for start in range(0, len(content), CHUNK_BYTES):
        yield bytes(content[start : start + CHUNK_BYTES])


def _receive(handle: Handle, messages: Iterator[bytes], into: memoryview) -> None:
    try:
        header = TransferHeader.FromString(next(messages))
    except (StopIteration, DecodeError) as error:
        raise TransferCorrupted(
            f"{handle.source} sent no header: is that a Transfer service of this version?"
        ) from error
    check_header(handle, header)
    hasher, position = xxhash.xxh3_128(), 0
    for message in messages:
        end = position + len(message)
        if end > len(into):
            check_length(handle, end)
        into[position:end] = message
        hasher.update(message)
        position = end
    check_length(handle, position)
    check_content(handle, hasher.digest())
