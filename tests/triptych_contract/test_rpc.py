from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from triptych_contract.errors import (
    FingerprintMismatch,
    InternalError,
    LeaseExpired,
    Overloaded,
    PromptTooLong,
    Reason,
    TriptychError,
    Unavailable,
)
from triptych_contract.names import ERROR_METADATA
from triptych_contract.rpc import abort_with, error_from_rpc
from triptych_contract.statuses import GRPC_STATUS

SECONDS = 60.0  # for an answer; on a machine that others use too

Handler = Callable[[bytes, grpc.aio.ServicerContext], object]


@asynccontextmanager
async def calling(handler: Handler) -> AsyncIterator[grpc.aio.UnaryUnaryMultiCallable]:
    """A client's method on a real server whose only method is ``handler``."""
    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(handler)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.S", {"M": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel.unary_unary("/t.S/M")
    finally:
        await server.stop(None)


async def sent(error: TriptychError) -> tuple[grpc.StatusCode, TriptychError]:
    """What arrives when a server aborts with ``error``."""

    async def handler(_: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await abort_with(context, error)

    async with calling(handler) as call:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", timeout=SECONDS)
        return caught.value.code(), error_from_rpc(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        Overloaded("the queue holds 9 of 9; come back in a second", retry_after=1.25),
        LeaseExpired("lease 7 ended; encode again"),
        FingerprintMismatch("made by another encoder"),
        PromptTooLong("4097 tokens; 4096 fit"),
        InternalError("ein Fehler: ü"),
    ],
)
async def test_an_error_arrives_as_it_was_sent(error: TriptychError) -> None:
    code, received = await sent(error)
    assert code == GRPC_STATUS[error.reason]
    assert type(received) is type(error)
    assert (received.message, received.retry_after) == (error.message, error.retry_after)


@pytest.mark.parametrize("letter", ["x", "ü", "\udc80"])
async def test_a_message_of_any_length_arrives_shortened(letter: str) -> None:
    code, received = await sent(LeaseExpired(letter * 100_000))
    assert code == grpc.StatusCode.NOT_FOUND
    assert received.reason == Reason.LEASE_EXPIRED
    assert received.message.endswith("...")
    assert len(received.message.encode()) <= 1024


async def test_a_status_without_detail_still_gets_its_class() -> None:
    async def handler(_: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")

    async with calling(handler) as call:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
    received = error_from_rpc(caught.value)
    assert (type(received), received.message) == (Overloaded, "too much")


async def test_a_damaged_detail_falls_back_to_the_status() -> None:
    async def handler(_: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await context.abort(
            grpc.StatusCode.UNAVAILABLE, "draining", ((ERROR_METADATA, b"\xff\xff\xff"),)
        )

    async with calling(handler) as call:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
    received = error_from_rpc(caught.value)
    assert (type(received), received.message) == (Unavailable, "draining")


async def test_a_peer_that_is_not_there_is_unavailable() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/t.S/M")(b"", timeout=SECONDS)
    assert isinstance(error_from_rpc(caught.value), Unavailable)
