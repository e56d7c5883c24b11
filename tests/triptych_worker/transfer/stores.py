"""Stores of a few KiB by a clock that tests move, and what is put into them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from triptych_worker.domain import Handle, HandleKind
from triptych_worker.transfer.arena import Arena
from triptych_worker.transfer.store import Origin, TensorStore

KIB = 1024
ONE, TWO = "f1" * 32, "f2" * 32
EMBEDDING, KV = HandleKind.EMBEDDING, HandleKind.KV


class Clock:
    """Time that tests move."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def new_store(
    clock: Callable[[], float], size: int = 4 * KIB, *, keeps: bool = True
) -> TensorStore:
    origin = Origin("10.0.0.1:50051", "boot-1", ("nixl", "grpc"))
    return TensorStore(Arena(size), origin, lease_seconds=30.0, keeps_embeddings=keeps, clock=clock)


def key(name: str) -> bytes:
    return name.encode().ljust(32, b".")


def publish(
    store: TensorStore, name: str, kind: HandleKind = EMBEDDING, *, of: str = ONE, size: int = KIB
) -> Handle:
    tensor = torch.full((size,), ord(name[0]), dtype=torch.uint8)
    return store.publish(kind, key(name), of, tensor)


def used(store: TensorStore) -> int:
    store.check_integrity()
    return store.arena.used_bytes
