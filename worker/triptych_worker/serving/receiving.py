"""Receives the tensors of an encode: raw chunks into memory of the announced sizes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import torch
from triptych_contract.errors import InvalidRequest
from triptych_contract.v1 import stages_pb2

from triptych_worker.serving.incoming import TensorHeader
from triptych_worker.serving.peers import deadline
from triptych_worker.transfer.layout import DTYPES


class TensorWriter:
    """Fills tensors one after another from a stream of bytes, however it is cut into chunks."""

    def __init__(self, headers: Sequence[TensorHeader]) -> None:
        self._tensors = {
            header.name: torch.empty(header.shape, dtype=DTYPES[header.dtype]) for header in headers
        }
        self._rooms = [_bytes_of(tensor) for tensor in self._tensors.values()]
        self._size = sum(header.size_bytes for header in headers)
        self._written = 0

    def write(self, chunk: bytes) -> None:
        """Takes the next bytes.

        Raises:
            InvalidRequest: more bytes than were announced.
        """
        rest = memoryview(chunk)
        self._written += len(rest)
        if self._written > self._size:
            raise InvalidRequest(f"data: more bytes than the {self._size} that tensors announce")
        while rest:
            room = self._rooms[0]
            taken = min(len(room), len(rest))
            room[:taken] = rest[:taken]
            rest = rest[taken:]
            self._rooms[0] = room[taken:]
            if taken == len(room):
                self._rooms.pop(0)

    def finish(self) -> Mapping[str, torch.Tensor]:
        """The whole tensors by name.

        Raises:
            InvalidRequest: fewer bytes than were announced.
        """
        if self._written < self._size:
            raise InvalidRequest(
                f"data: {self._written} bytes came of the {self._size} that tensors announce"
            )
        return self._tensors


async def first_header(
    chunks: AsyncIterator[stages_pb2.EncodeChunk], seconds: float
) -> stages_pb2.EncodeHeader:
    """The header that must come first.

    Raises:
        InvalidRequest: the stream begins with something else, or is empty.
        DeadlineExceeded: nothing came in time.
    """
    chunk = await _next(chunks, seconds)
    if chunk is None or chunk.WhichOneof("part") != "header":
        raise InvalidRequest("header: must be the first message of an encode")
    return chunk.header


async def receive(
    chunks: AsyncIterator[stages_pb2.EncodeChunk], headers: Sequence[TensorHeader], seconds: float
) -> Mapping[str, torch.Tensor]:
    """The tensors behind a header; the caller has reserved their bytes.

    Raises:
        InvalidRequest: too few bytes, too many, or something else than bytes.
        DeadlineExceeded: the sender paused for longer than ``seconds``.
    """
    writer = TensorWriter(headers)
    while (chunk := await _next(chunks, seconds)) is not None:
        if chunk.WhichOneof("part") != "data":
            raise InvalidRequest("data: only bytes may follow the header")
        writer.write(chunk.data)
    return writer.finish()


async def _next(
    chunks: AsyncIterator[stages_pb2.EncodeChunk], seconds: float
) -> stages_pb2.EncodeChunk | None:
    async with deadline(seconds, "the next chunk of the encode"):
        return await anext(chunks, None)


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data
