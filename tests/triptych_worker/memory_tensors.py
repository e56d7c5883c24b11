"""A tensor holder and source in one process's memory, with the books a test looks at."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import torch
from triptych_contract.errors import LeaseExpired
from triptych_worker.domain import Handle, HandleKind


class MemoryTensors:
    """Implements ``domain.TensorHolder`` and ``domain.TensorSource``."""

    def __init__(self, instance: str = "holder") -> None:
        self.instance = instance
        self.held: dict[str, torch.Tensor] = {}  # by lease
        self.borrowed: list[bytes] = []  # keys, in order
        self.released: list[bytes] = []

    def publish(
        self,
        kind: HandleKind,
        key: bytes,
        fingerprint: str,
        tensor: torch.Tensor,
        *,
        seconds: float = 0.0,
    ) -> Handle:
        lease_id = secrets.token_hex(8)
        self.held[lease_id] = tensor.clone(memory_format=torch.contiguous_format)
        return Handle(
            kind=kind,
            lease_id=lease_id,
            source="127.0.0.1:1",
            instance=self.instance,
            key=key,
            fingerprint=fingerprint,
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            size_bytes=tensor.nbytes,
            checksum=bytes(16),
            ttl_seconds=30.0,
            transports=("grpc",),
        )

    def lease(self, key: bytes, fingerprint: str) -> Handle | None:
        return None

    @asynccontextmanager
    async def borrow(self, handle: Handle) -> AsyncIterator[torch.Tensor]:
        if handle.lease_id not in self.held:
            raise LeaseExpired("lease again")
        self.borrowed.append(handle.key)
        try:
            yield self.held[handle.lease_id]
        finally:
            self.held.pop(handle.lease_id, None)

    async def release(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            if self.held.pop(handle.lease_id, None) is not None:
                self.released.append(handle.key)
