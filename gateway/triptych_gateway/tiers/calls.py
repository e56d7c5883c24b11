"""Calls to pods: each with a deadline, each failing with an error of the one tree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import grpc
import torch
from triptych_contract.errors import Unavailable
from triptych_contract.names import ERROR_METADATA
from triptych_contract.rpc import error_from_rpc
from triptych_contract.v1.common_pb2 import Handle, TensorSpec, TokenEvent
from triptych_contract.v1.stages_pb2 import (
    DecodeRequest,
    EncodeChunk,
    EncodeHeader,
    EncodeResponse,
    GenerateRequest,
    LeaseRequest,
    LeaseResponse,
    NamedTensor,
    PrefillResponse,
)
from triptych_contract.v1.stages_pb2_grpc import DecodeStub, EncoderStub, FusedStub, PrefillStub
from triptych_contract.v1.transfer_pb2 import ReleaseRequest
from triptych_contract.v1.transfer_pb2_grpc import TransferStub
from triptych_contract.v1.worker_pb2 import DescribeRequest, DescribeResponse
from triptych_contract.v1.worker_pb2_grpc import WorkerStub

from triptych_gateway.deadlines import Deadline
from triptych_gateway.processors.pictures import Processed, dtype_name

_CHUNK_BYTES: Final = 1024 * 1024
_RELEASE_SECONDS: Final = 2.0
_SILENT_SECONDS: Final = 12.0  # a worker refuses to be pinged more often than every 10
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.max_send_message_length", 16 * 1024 * 1024),
    ("grpc.http2.max_frame_size", 4 * 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.use_local_subchannel_pool", 1),  # a pod that came back gets a connection of its own
)
# What a call ends with when the peer's process or connection went away in the middle of it.
_LOST: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)


class PodLost(Unavailable):
    """The pod did not answer for itself. ``reached``: it may have seen the request before."""

    def __init__(self, message: str, *, reached: bool = True) -> None:
        super().__init__(message, retry_after=1.0)
        self.reached = reached


class PodCalls:
    """Persistent channels to pods, one per address, and the calls that are made on them.

    Calls end with ``PodLost`` once the pod's connection has not answered for ``silent_seconds``:
    the process is frozen, or the network gone. One that is starved of processors or waits for its
    own work still answers, however late its replies are.
    """

    def __init__(self, silent_seconds: float = _SILENT_SECONDS) -> None:
        milliseconds = round(silent_seconds * 1000)
        self._options = (
            *_OPTIONS,
            ("grpc.keepalive_time_ms", milliseconds),  # asked when nothing else comes
            ("grpc.http2.ping_timeout_ms", milliseconds),
        )
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def describe(self, address: str, seconds: float) -> DescribeResponse:
        """Who the pod is and what it has to do."""
        with _translated(address):
            stub = WorkerStub(self._channel(address))
            return await stub.Describe(DescribeRequest(), timeout=seconds)

    async def lease(self, address: str, request: LeaseRequest, deadline: Deadline) -> LeaseResponse:
        """Handles of embeddings that the pod holds or is making."""
        with _translated(address):
            stub = EncoderStub(self._channel(address))
            return await stub.Lease(request, timeout=deadline.remaining())

    async def encode(
        self, address: str, header: EncodeHeader, picture: Processed, deadline: Deadline
    ) -> EncodeResponse:
        """Sends a picture's tensors and gets a handle of its embedding.

        ``header`` is complete but for the tensors' names and shapes.
        """
        with _translated(address):
            stub = EncoderStub(self._channel(address))
            return await stub.Encode(_chunks(header, picture), timeout=deadline.remaining())

    async def prefill(
        self, address: str, request: GenerateRequest, deadline: Deadline
    ) -> PrefillResponse:
        """The first token, and a handle of the prompt's keys and values."""
        with _translated(address):
            stub = PrefillStub(self._channel(address))
            return await stub.Prefill(request, timeout=deadline.remaining())

    def decode(
        self, address: str, request: DecodeRequest, deadline: Deadline
    ) -> AsyncGenerator[TokenEvent, None]:
        """The tokens after the first. Closing the generator ends the call."""
        stub = DecodeStub(self._channel(address))
        return _events(address, stub.Decode(request, timeout=deadline.remaining()))

    def generate(
        self, address: str, request: GenerateRequest, deadline: Deadline
    ) -> AsyncGenerator[TokenEvent, None]:
        """All tokens. Closing the generator ends the call."""
        stub = FusedStub(self._channel(address))
        return _events(address, stub.Generate(request, timeout=deadline.remaining()))

    async def release(self, handles: Sequence[Handle]) -> None:
        """Gives leases back that nobody will fetch, as far as that works: they expire anyway."""
        by_source: dict[str, list[str]] = {}
        for handle in handles:
            by_source.setdefault(handle.source, []).append(handle.lease_id)
        await asyncio.gather(
            *(
                TransferStub(self._channel(source)).Release(
                    ReleaseRequest(lease_ids=leases), timeout=_RELEASE_SECONDS
                )
                for source, leases in by_source.items()
            ),
            return_exceptions=True,
        )

    async def forget(self, address: str) -> None:
        """Ends every call to ``address``, each with ``PodLost``, and its channel."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()

    async def close(self) -> None:
        """Ends all calls and channels."""
        for address in list(self._channels):
            await self.forget(address)

    def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = grpc.aio.insecure_channel(address, options=self._options)
            self._channels[address] = channel
        return channel


async def _events(
    address: str, call: grpc.aio.UnaryStreamCall[Any, TokenEvent]
) -> AsyncGenerator[TokenEvent, None]:
    try:
        with _translated(address):
            async for event in call:
                yield event
    finally:
        call.cancel()


async def _chunks(header: EncodeHeader, picture: Processed) -> AsyncIterator[EncodeChunk]:
    complete = EncodeHeader()
    complete.CopyFrom(header)
    complete.tensors.extend(
        NamedTensor(name=name, tensor=TensorSpec(shape=tensor.shape, dtype=dtype_name(tensor)))
        for name, tensor in picture.tensors.items()
    )
    yield EncodeChunk(header=complete)
    for tensor in picture.tensors.values():
        raw = tensor.reshape(-1).view(torch.uint8).numpy().data
        for start in range(0, len(raw), _CHUNK_BYTES):
            yield EncodeChunk(data=bytes(raw[start : start + _CHUNK_BYTES]))


@contextmanager
def _translated(address: str) -> Iterator[None]:
    """Turns what gRPC raises into the error that the pod meant."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        told = any(key == ERROR_METADATA for key, _ in error.trailing_metadata() or ())
        if not told and error.code() in _LOST:
            raise PodLost(f"pod {address} went away", reached=_reached(error)) from error
        raise error_from_rpc(error) from error
    except grpc.aio.UsageError as error:
        raise PodLost(f"pod {address} was given up") from error
    except asyncio.CancelledError as error:
        # Closing a channel cancels its calls; only a task that was cancelled itself is cancelled.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise PodLost(f"pod {address} stopped answering") from error


def _reached(error: grpc.aio.AioRpcError) -> bool:
    """Whether there was a connection. Only the text tells; in doubt there was one."""
    return "failed to connect" not in (error.details() or "").lower()
