"""What the two ends tell each other, over real connections between two services here."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest
import torch
from triptych_contract.config import Transfer
from triptych_contract.errors import (
    FingerprintMismatch,
    InvalidRequest,
    LeaseExpired,
    TransferCorrupted,
    Unavailable,
)
from triptych_contract.names import TRANSFER_FETCH
from triptych_contract.rpc import error_from_rpc
from triptych_contract.v1.transfer_pb2 import FetchRequest, OpenRequest, ReleaseRequest
from triptych_contract.v1.transfer_pb2_grpc import TransferStub
from triptych_worker.domain import Handle, HandleKind
from triptych_worker.transfer import releases
from triptych_worker.transfer.service import TransferService

pytestmark = pytest.mark.torch

FINGERPRINT = "f1" * 32
KEY = b"k" * 32


def publish(service: TransferService, kind: HandleKind = HandleKind.EMBEDDING) -> Handle:
    return service.store.publish(kind, KEY, FINGERPRINT, torch.arange(24.0).reshape(4, 6))


async def fetch(service: TransferService, handle: Handle) -> torch.Tensor:
    async with service.source.borrow(handle) as tensor:
        return tensor.clone()


async def test_a_tensor_goes_from_one_service_to_the_other(
    transport: str, holding: Any, receiver: Any, observer: Any
) -> None:
    async with holding(transport) as there, receiver(transport) as here:
        handle = publish(there, HandleKind.KV)
        assert torch.equal(await fetch(here, handle), torch.arange(24.0).reshape(4, 6))
        assert await there.wait_released(60.0)
        assert there.store.arena.used_bytes == 0
    assert observer.moved == {(transport, "sent"): 96, (transport, "received"): 96}


async def test_a_flipped_bit_is_found(transport: str, holding: Any, receiver: Any) -> None:
    async with holding(transport) as there, receiver(transport) as here:
        handle = publish(there)
        there.store.arena.buffer[50] ^= 1
        with pytest.raises(TransferCorrupted, match="checksum"):
            await fetch(here, handle)
        assert here.source.landing.arena.used_bytes == 0
        there.store.arena.buffer[50] ^= 1
        assert (await fetch(here, handle)).sum() == 276


async def test_a_handle_that_is_not_the_tensors_is_refused(
    transport: str, holding: Any, receiver: Any
) -> None:
    async with holding(transport) as there, receiver(transport) as here:
        handle = publish(there)
        wrong = [
            (replace(handle, lease_id="0" * 32), LeaseExpired),
            (replace(handle, key=b"?" * 32), LeaseExpired),
            (replace(handle, fingerprint="0" * 64), FingerprintMismatch),
            (replace(handle, shape=(6, 4)), TransferCorrupted),
            (replace(handle, shape=(4, 3), dtype="int64"), TransferCorrupted),
            (replace(handle, shape=(4, 5), size_bytes=80), TransferCorrupted),
            (replace(handle, checksum=b"?" * 16), TransferCorrupted),
            (replace(handle, size_bytes=95), InvalidRequest),
            (replace(handle, dtype="object"), InvalidRequest),
            (replace(handle, transports=("carrier pigeon",)), Unavailable),
            (replace(handle, source="127.0.0.1:1", lease_id="0" * 32), Unavailable),
        ]
        for changed, error in wrong:
            with pytest.raises(error):
                await fetch(here, changed)
        assert (await fetch(here, handle)).sum() == 276


async def test_a_lease_whose_time_is_over_is_told(
    transport: str, holding: Any, receiver: Any
) -> None:
    async with holding(transport, lease_seconds=0.05) as there, receiver(transport) as here:
        handle = publish(there, HandleKind.KV)
        await asyncio.sleep(0.1)
        with pytest.raises(LeaseExpired):
            await fetch(here, handle)
        assert await there.wait_released(60.0), "the sweep ends it without being asked"
        assert there.store.arena.used_bytes == 0


async def test_a_restarted_holder_does_not_know_the_lease_and_serves_new_ones(
    transport: str, holding: Any, receiver: Any
) -> None:
    async with receiver(transport) as here:
        async with holding(transport) as first:
            old, unread = publish(first), publish(first)
            await fetch(here, old)
        async with holding(transport) as second:
            new = publish(second)
            assert new.instance != old.instance
            with pytest.raises(LeaseExpired):  # what now listens there is another process
                await fetch(here, replace(unread, source=new.source))
            assert (await fetch(here, new)).sum() == 276


async def test_a_receiver_without_nixl_is_served_by_grpc(
    transport: str, holding: Any, receiver: Any, observer: Any
) -> None:
    async with holding(transport) as there, receiver("grpc") as here:
        await fetch(here, publish(there))
    assert observer.moved["grpc", "received"] == 96


async def test_draining_waits_for_leases_no_longer_than_told(holding: Any) -> None:
    async with holding("grpc") as there:
        handle = publish(there)
        assert not await there.wait_released(0.05)
        await there.source.release([handle])
        assert await there.wait_released(60.0)


async def test_leases_are_given_back_unread(
    holding: Any, receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A call that takes longer leaves them to expire, as it may.
    monkeypatch.setattr(releases, "_CALL_SECONDS", 60.0)
    async with holding("grpc") as there, receiver("grpc") as here:
        handles = [publish(there, HandleKind.KV) for _ in range(20)]
        await here.source.release(handles)
        assert (there.store.leases, there.store.arena.used_bytes) == (0, 0)


async def test_calls_that_make_no_sense_are_told_why(holding: Any) -> None:
    async with holding("grpc") as there:
        handle = publish(there)
        request = FetchRequest(lease_id=handle.lease_id, key=KEY, fingerprint=FINGERPRINT)
        async with grpc.aio.insecure_channel(handle.source) as channel:
            stub = TransferStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Open(OpenRequest(fetch=request, transport="nixl"))
            assert isinstance(error_from_rpc(caught.value), InvalidRequest)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in channel.unary_stream(TRANSFER_FETCH)(b"\xff\xff"):
                    pass
            assert isinstance(error_from_rpc(caught.value), InvalidRequest)
            answer = await stub.Release(ReleaseRequest(lease_ids=["unknown", handle.lease_id]))
            assert answer.released == 1


async def test_a_reader_that_leaves_in_mid_stream_holds_nothing(holding: Any) -> None:
    async with holding("grpc") as there:
        tensor = torch.zeros(32 * 1024 * 1024, dtype=torch.uint8)
        handle = there.store.publish(HandleKind.KV, KEY, FINGERPRINT, tensor)
        request = FetchRequest(lease_id=handle.lease_id, key=KEY, fingerprint=FINGERPRINT)
        async with grpc.aio.insecure_channel(handle.source) as channel:
            call = channel.unary_stream(TRANSFER_FETCH)(request.SerializeToString())
            await call.read()
            await asyncio.sleep(0.05)
            assert there.store.leases == 2
            call.cancel()
        there.store.release([handle.lease_id])
        assert await there.wait_released(60.0)
        assert there.store.arena.used_bytes == 0


def test_asking_for_nixl_where_it_is_not_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, observer: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "nixl", None)  # as if it were not installed
    made = {"instance": "i", "source": "127.0.0.1:1", "holding_bytes": 0, "landing_bytes": 0}
    with pytest.raises(InvalidRequest, match=r"install triptych\[nixl\]"):
        TransferService(Transfer(transport="nixl"), observer, **made)
    assert TransferService(Transfer(transport="auto"), observer, **made).transports == ("grpc",)
