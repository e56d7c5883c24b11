"""Real transfers between two processes, over every transport."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import runpy
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triptych_contract.errors import (
    DeadlineExceeded,
    FingerprintMismatch,
    InvalidRequest,
    LeaseExpired,
    TransferCorrupted,
    Unavailable,
)
from triptych_worker.domain import Handle, HandleKind
from triptych_worker.transfer.service import TransferService

pytestmark = [pytest.mark.torch, pytest.mark.processes]

MIB = 1024 * 1024
TRANSPORTS = ["grpc"] + ["nixl"] * (importlib.util.find_spec("nixl") is not None)


# The same tensors as in the holder's process.
content = runpy.run_path(str(Path(__file__).with_name("holder.py")))["content"]


async def released(ask) -> int:
    """Leases that the holder has once the receiver's releases have arrived."""
    for _ in range(100):
        if (leases := await asyncio.to_thread(ask, "leases")) == 0:
            break
        await asyncio.sleep(0.05)
    return leases


async def fetch(service: TransferService, handle: Handle) -> torch.Tensor:
    async with service.source.borrow(handle) as tensor:
        return tensor.clone()


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return (left.shape, left.dtype) == (right.shape, right.dtype) and torch.equal(
        left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8)
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_tensors_arrive_bit_for_bit_and_their_leases_end(
    transport, start_holder, receiver, observer
) -> None:
    holder = start_holder(transport)
    shapes = [((3, 5), "float32"), ((700, 513), "bfloat16"), ((9,), "int64"), ((2, 3), "float16")]
    shapes += [((5 * MIB + 7,), "uint8"), ((0, 8), "float32")]
    total = 0
    async with receiver(transport) as service:
        for seed, (shape, dtype) in enumerate(shapes):
            handle = holder.publish(shape, dtype, seed=seed, key=bytes([seed]) * 32)
            assert handle.transports[0] == transport
            arrived = await fetch(service, handle)
            assert same_bits(arrived, content(shape, dtype, seed))
            total += handle.size_bytes
        assert await released(holder.ask) == 0
    assert observer.moved == {(transport, "received"): total}
    assert holder.ask("check") is None


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_flipped_bit_is_found(transport, start_holder, receiver) -> None:
    holder = start_holder(transport)
    handle = holder.publish((3 * MIB,), "uint8")
    holder.ask("corrupt", at=2 * MIB)
    async with receiver(transport) as service:
        with pytest.raises(TransferCorrupted, match="checksum"):
            await fetch(service, handle)
        assert service.source.landing.arena.used_bytes == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_handle_that_does_not_fit_the_tensor_is_refused(
    transport, start_holder, receiver
) -> None:
    holder = start_holder(transport)
    handle = holder.publish((4, 6))
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
    ]
    async with receiver(transport) as service:
        for changed, error in wrong:
            with pytest.raises(error):
                await fetch(service, changed)
        assert same_bits(await fetch(service, handle), content([4, 6], "float32", 1))


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_expired_lease_is_told(transport, start_holder, receiver) -> None:
    holder = start_holder(transport, lease_seconds=0.2)
    handle = holder.publish((4, 6), kind=HandleKind.KV)
    await asyncio.sleep(0.3)
    async with receiver(transport) as service:
        with pytest.raises(LeaseExpired):
            await fetch(service, handle)
    assert await released(holder.ask) == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_restarted_holder_does_not_know_the_lease_and_serves_anew(
    transport, start_holder, receiver
) -> None:
    first, second = start_holder(transport), start_holder(transport)
    old, new = first.publish((4, 6)), second.publish((4, 6))
    async with receiver(transport) as service:
        await fetch(service, old)
        first.end()
        with pytest.raises(LeaseExpired):  # what now listens there is another process
            await fetch(service, replace(old, source=new.source))
        assert same_bits(await fetch(service, new), content([4, 6], "float32", 1))


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_dead_holder_is_unavailable_at_once(transport, start_holder, receiver) -> None:
    holder = start_holder(transport)
    handle = holder.publish((4, 6))
    async with receiver(transport) as service:
        await fetch(service, handle)
        again = holder.publish((4, 6))
        holder.end()
        started = time.monotonic()
        with pytest.raises(Unavailable):
            await fetch(service, again)
        assert time.monotonic() - started < 10
        assert service.source.landing.arena.used_bytes == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_holder_that_hangs_costs_no_more_than_the_deadline(
    transport, start_holder, receiver
) -> None:
    holder = start_holder(transport)
    handle = holder.publish((4, 6))
    async with receiver(transport, timeout_seconds=1.0) as service:
        os.kill(holder.process.pid, signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await fetch(service, handle)
        assert time.monotonic() - started < 5
        os.kill(holder.process.pid, signal.SIGCONT)


async def test_a_holder_killed_in_mid_stream_is_unavailable(start_holder, receiver) -> None:
    size = 256 * MIB
    holder = start_holder(holding=size)
    handle = holder.publish((size,), "uint8", kind=HandleKind.KV)
    async with receiver(landing=size) as service:
        fetching = asyncio.create_task(fetch(service, handle))
        while not any(service.source.landing.arena.view(0, 64)):  # noqa: ASYNC110 - foreign memory
            await asyncio.sleep(0.001)
        holder.process.kill()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(fetching, 10)
        assert service.source.landing.arena.used_bytes == 0
