"""Moves tensors between two processes by every transport, against a raw loopback socket.

    python -m bench.transfer [--repeats 15] [--sizes 10 160]

One row of the table is one size and one way. A repetition runs the socket and then each transport,
so all see the same machine, and a ratio compares neighbours. The socket receives into memory that
is there already and checks nothing. A transport's time is all that a stage waits for: asking for
the lease, the transfer, the checksum, and having the tensor. ``bare grpc`` is the most that
Python's gRPC gives: one chunk again and again on such a connection, thrown away on arrival.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final

import grpc
import torch
from triptych_contract.config import MIB, Transfer
from triptych_contract.v1.common_pb2 import Handle as HandleMessage
from triptych_worker.domain import HandleKind
from triptych_worker.serving import incoming, outgoing
from triptych_worker.transfer.peers import PeerChannels
from triptych_worker.transfer.service import TransferService

LEASE: Final = "/bench.Bench/Lease"
CEILING: Final = "/bench.Bench/Stream"
CHUNK: Final = bytes(MIB)
FINGERPRINT: Final = "f" * 64
SECONDS: Final = 60.0

LeaseCall = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
Fetch = Callable[[int], Awaitable[None]]


class Unobserved:
    """An observer that keeps nothing."""

    def seconds(self, stage: str, value: float) -> None:
        """Passed over."""

    def add(self, metric: str, amount: float = 1.0, **labels: str) -> None:
        """Passed over."""

    def time_per_output_token(self, value: float) -> None:
        """Passed over."""


def service_of(
    transport: str, name: str, source: str, holding: int, landing: int
) -> TransferService:
    """One end."""
    return TransferService(
        Transfer.model_validate({"transport": transport}),
        Unobserved(),
        instance=f"bench-{name}",
        source=source,
        holding_bytes=holding,
        landing_bytes=landing,
    )


def hold(pipe: Connection, transport: str, sizes: list[int]) -> None:
    """The other process: publishes one tensor per size, and answers leases and the socket."""
    torch.set_num_threads(1)
    asyncio.run(_hold(pipe, transport, sizes))


async def _hold(pipe: Connection, transport: str, sizes: list[int]) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    service = service_of(transport, "holder", f"127.0.0.1:{port}", sum(sizes) + MIB, 0)
    for size in sizes:
        tensor = torch.randint(0, 256, (size,), dtype=torch.uint8)
        service.store.publish(HandleKind.EMBEDDING, _key(size), FINGERPRINT, tensor)

    async def lease(request: bytes, _: object) -> bytes:
        found = service.store.lease(request, FINGERPRINT)
        assert found is not None
        return outgoing.handle(found).SerializeToString()

    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(lease)
    stream: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_stream_rpc_method_handler(_bare_chunks)
    methods = {LEASE.rpartition("/")[2]: method, CEILING.rpartition("/")[2]: stream}
    handlers = grpc.method_handlers_generic_handler(LEASE[1:].partition("/")[0], methods)
    server.add_generic_rpc_handlers((handlers,))
    service.add_to(server)
    await server.start()
    await service.start()
    listener = socket.create_server(("127.0.0.1", 0))
    content = memoryview(bytearray(max(sizes)))
    threading.Thread(target=_send_raw, args=(listener, content), daemon=True).start()
    pipe.send((port, listener.getsockname()[1]))
    await asyncio.to_thread(pipe.recv)  # until the other side is done
    await service.stop()
    await server.stop(None)


async def _bare_chunks(request: bytes, _: object) -> AsyncIterator[bytes]:
    for _ in range(int.from_bytes(request, "big") // MIB):
        yield CHUNK


def _send_raw(listener: socket.socket, content: memoryview) -> None:
    connection, _ = listener.accept()
    with connection:
        while asked := connection.recv(8):
            connection.sendall(content[: int.from_bytes(asked, "big")])


class RawSocket:
    """The yardstick: one TCP connection, received into memory that is there already."""

    def __init__(self, port: int, largest: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._into = memoryview(bytearray(largest))

    async def fetch(self, size: int) -> None:
        """Receives ``size`` bytes."""
        self._socket.sendall(size.to_bytes(8, "big"))
        position = 0
        while position < size:
            position += self._socket.recv_into(self._into[position:size])


class BareGrpc:
    """The ceiling of what comes by gRPC: no lease, no copy of ours, no checksum."""

    def __init__(self, address: str) -> None:
        self._peers = PeerChannels()
        self._address = address

    async def fetch(self, size: int) -> None:
        """Receives ``size`` bytes, on a thread as transports do."""
        await asyncio.to_thread(self._receive, size)

    def _receive(self, size: int) -> None:
        with self._peers.channel(self._address) as channel:
            call: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(CEILING)
            received = sum(len(chunk) for chunk in call(size.to_bytes(8, "big"), timeout=SECONDS))
        if received != size:
            raise RuntimeError(f"{received} bytes came, not {size}")


class Leased:
    """A transport from asking for the lease to having the tensor."""

    def __init__(self, channel: grpc.aio.Channel, service: TransferService) -> None:
        self._lease: LeaseCall = channel.unary_unary(LEASE)
        self._source = service.source

    async def fetch(self, size: int) -> None:
        """Leases, transfers and verifies ``size`` bytes."""
        message = HandleMessage.FromString(await self._lease(_key(size)))
        async with self._source.borrow(
            incoming.handle("lease", message, HandleKind.EMBEDDING)
        ) as tensor:
            if tensor.nbytes != size:
                raise RuntimeError(f"{tensor.nbytes} bytes came, not {size}")


async def measure(ways: dict[str, Fetch], size: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of every repetition by way, the ways taking turns."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(repeats + 2):
        for name, fetch in ways.items():
            started = time.perf_counter()
            await fetch(size)
            if repetition > 1:  # the first ones connect and touch memory
                seconds[name].append(time.perf_counter() - started)
    return seconds


def rows(size: int, seconds: dict[str, list[float]]) -> Iterator[str]:
    """Lines of the table."""
    for name, taken in seconds.items():
        ratios = [raw / own for raw, own in zip(seconds["socket"], taken, strict=True)]
        speed = size / statistics.median(taken) / 1e9
        yield (
            f"| {size // MIB} MiB | {name} | {1000 * statistics.median(taken):.1f} | {speed:.2f} | "
            f"{statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |"
        )


@contextmanager
def holder(transport: str, sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Ports of a holding process: gRPC, and the raw socket."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=hold, args=(theirs, transport, sizes))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join(10)
        process.kill()


async def run(transports: list[str], sizes: list[int], repeats: int) -> None:
    """Measures and prints."""
    with holder(transports[-1], sizes) as (port, raw_port):
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        services = {
            name: service_of(name, f"receiver-{name}", "127.0.0.1:1", 0, max(sizes))
            for name in transports
        }
        ways: dict[str, Fetch] = {"socket": RawSocket(raw_port, max(sizes)).fetch}
        if "grpc" in transports:
            ways["bare grpc"] = BareGrpc(f"127.0.0.1:{port}").fetch
        ways |= {name: Leased(channel, each).fetch for name, each in services.items()}
        print("| size | way | ms | GB/s | x socket, median | min | max |")
        print("|---|---|---|---|---|---|---|")
        for size in sizes:
            for row in rows(size, await measure(ways, size, repeats)):
                print(row, flush=True)
        for each in services.values():
            await each.stop()
        await channel.close()


def _key(size: int) -> bytes:
    return size.to_bytes(32, "big")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 160], help="MiB")
    parser.add_argument("--transports", nargs="+", default=["grpc", "nixl"])
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    asyncio.run(run(chosen.transports, [size * MIB for size in chosen.sizes], chosen.repeats))


if __name__ == "__main__":
    main()
