"""Real transfers between two processes, over every transport."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

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


def holder_module() -> ModuleType:
    path = Path(__file__).with_name("holder.py")
    spec = importlib.util.spec_from_file_location("transfer_holder", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


content = holder_module().content


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
