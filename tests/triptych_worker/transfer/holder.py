"""A process that holds tensors, for tests: answers one JSON command per line on standard input.

Commands: publish, leases, check, and the end of input.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import uuid
from typing import Any

import grpc
import torch
from triptych_contract.config import Transfer
from triptych_worker.domain import HandleKind
from triptych_worker.transfer.layout import DTYPES
from triptych_worker.transfer.service import TransferService


class Nobody:
    """An observer that does not look."""

    def seconds(self, stage: str, value: float) -> None: ...

    def add(self, metric: str, amount: float = 1.0, **labels: str) -> None: ...

    def time_per_output_token(self, value: float) -> None: ...


def content(shape: list[int], dtype: str, seed: int) -> torch.Tensor:
    """The same tensor in every process: random bits of any value, NaN among them."""
    size = torch.empty(shape, dtype=DTYPES[dtype]).nbytes
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(-(2**63), 2**63 - 1, (-(-size // 8),), generator=generator)
    return words.view(torch.uint8)[:size].view(DTYPES[dtype]).view(shape)


def publish(service: TransferService, command: dict[str, Any]) -> dict[str, Any]:
    tensor = content(command["shape"], command["dtype"], command["seed"])
    handle = service.store.publish(
        HandleKind(command["kind"]), bytes.fromhex(command["key"]), command["fingerprint"], tensor
    )
    return dataclasses.asdict(handle) | {"key": handle.key.hex(), "checksum": handle.checksum.hex()}


def answer(service: TransferService, command: dict[str, Any]) -> Any:
    match command["do"]:
        case "publish":
            return publish(service, command)
        case "leases":
            return service.store.leases
        case "check":
            return service.store.check_integrity()


async def main(config: str, holding_bytes: int) -> None:
    torch.set_num_threads(1)
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    service = TransferService(
        Transfer.model_validate_json(config),
        Nobody(),
        instance=uuid.uuid4().hex,
        source=f"127.0.0.1:{port}",
        holding_bytes=holding_bytes,
        landing_bytes=0,
    )
    service.add_to(server)
    await server.start()
    await service.start()
    while line := await asyncio.to_thread(sys.stdin.readline):
        result = await asyncio.to_thread(answer, service, json.loads(line))
        print(json.dumps(result), flush=True)
    await service.stop()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
