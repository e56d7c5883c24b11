"""Real transfers between two processes, over every transport."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from cluster.waiting import eventually
from triptych_contract.errors import DeadlineExceeded, Unavailable
from triptych_worker.domain import Handle, HandleKind
from triptych_worker.transfer import grpc_stream

pytestmark = [pytest.mark.torch, pytest.mark.processes]

MIB = 1024 * 1024
# The same tensors as in the holder's process.
content = runpy.run_path(str(Path(__file__).with_name("holder.py")))["content"]


@pytest.fixture(scope="module")
def holder(transport: str, start_holder: Any) -> Any:
    """A holder for the tests that leave it alive."""
    return start_holder(transport)


async def released(holder: Any) -> int:
    """Leases that the holder has once the receiver's releases have arrived."""
    leases: int = -1
    deadline = time.monotonic() + 60
    while leases and time.monotonic() < deadline:
        leases = await asyncio.to_thread(holder.ask, "leases")
        await asyncio.sleep(0.05)
    return leases


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return (left.shape, left.dtype) == (right.shape, right.dtype) and torch.equal(
        left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8)
    )


async def test_tensors_arrive_bit_for_bit_and_their_leases_end(
    transport, holder, receiver, observer
) -> None:
    shapes = [((3, 5), "float32"), ((700, 513), "bfloat16"), ((9,), "int64"), ((2, 3), "float16")]
    shapes += [((5 * MIB + 7,), "uint8"), ((0, 8), "float32")]
    total = 0
    async with receiver(transport) as service:
        for seed, (shape, dtype) in enumerate(shapes):
            handle = holder.publish(shape, dtype, seed=seed, key=bytes([seed]) * 32)
            assert handle.transports[0] == transport
            async with service.source.borrow(handle) as arrived:
                assert same_bits(arrived, content(shape, dtype, seed))
            total += handle.size_bytes
        assert await released(holder) == 0
    assert observer.moved == {(transport, "received"): total}
    assert holder.ask("check") is None


async def test_a_holder_that_hangs_costs_no_more_than_the_deadline(
    transport, holder, receiver
) -> None:
    handle = holder.publish((4, 6), kind=HandleKind.KV)
    async with receiver(transport, timeout_seconds=1.0) as service:
        # Of a connection that is still to be made gRPC gives the attempt up after a second, too.
        with service.channels.channel(handle.source) as channel:
            await asyncio.to_thread(grpc.channel_ready_future(channel).result, 60)
        os.kill(holder.process.pid, signal.SIGSTOP)
        try:
            started = time.monotonic()
            with pytest.raises(DeadlineExceeded):
                async with service.source.borrow(handle):
                    pass
            assert time.monotonic() - started < 15  # where no deadline is given it is 20
        finally:
            os.kill(holder.process.pid, signal.SIGCONT)


async def test_a_dead_holder_is_unavailable_at_once(transport, start_holder, receiver) -> None:
    holder = start_holder(transport)
    handle, again = (holder.publish((4, 6), kind=HandleKind.KV) for _ in range(2))
    async with receiver(transport) as service:
        async with service.source.borrow(handle):
            holder.end()
        await asyncio.wait_for(service.source.release([again]), 10)
        with pytest.raises(Unavailable):
            async with asyncio.timeout(10), service.source.borrow(again):
                pass
        assert service.source.landing.arena.used_bytes == 0


class HeldUp:
    """A receiver that reads no more than a header and one chunk before it is let go: by far not all
    of a large tensor fits in between."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._receive = grpc_stream._receive
        monkeypatch.setattr(grpc_stream, "_receive", self._in_parts)

    def _in_parts(self, handle: Handle, messages: Iterator[bytes], into: memoryview) -> None:
        self._receive(handle, self._parts(messages), into)

    def _parts(self, messages: Iterator[bytes]) -> Iterator[bytes]:
        for number, message in enumerate(messages):
            if number == 2:
                self.reached.set()
                assert self.go_on.wait(60)
            yield message


async def test_a_holder_killed_in_mid_stream_is_unavailable(
    start_holder, receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, held_up = 256 * MIB, HeldUp(monkeypatch)
    holder = start_holder("grpc", holding=size)
    handle = holder.publish((size,), "uint8", kind=HandleKind.KV)
    async with receiver("grpc", landing=size) as service:
        arena = service.source.landing.arena

        async def fetch() -> None:
            async with service.source.borrow(handle):
                pass

        fetching = asyncio.create_task(fetch())
        await eventually(
            lambda: held_up.reached.is_set() or fetching.done(), "the first bytes", seconds=60
        )
        assert not fetching.done()
        assert any(arena.view(0, 64))
        holder.end()
        held_up.go_on.set()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(fetching, 10)
        assert arena.used_bytes == 0
