"""What a transport is, and what every transport checks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from triptych_contract.errors import FingerprintMismatch, TransferCorrupted
from triptych_contract.v1.common_pb2 import TensorSpec
from triptych_contract.v1.transfer_pb2 import FetchRequest, TransferHeader

from triptych_worker.domain import Handle
from triptych_worker.transfer.store import Held


@dataclass(frozen=True, slots=True)
class Place:
    """Registered memory of this process that a tensor arrives in."""

    view: memoryview  # bytes, as long as the tensor
    address: int


class Limit:
    """How long a pull may take, and the way to end it early from another thread."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._cancelled = False
        self._on_cancel: Callable[[], object] | None = None

    @property
    def remaining(self) -> float:
        """Seconds left, never negative; 0 once cancelled."""
        return 0.0 if self._cancelled else max(0.0, self._ends - time.monotonic())

    def on_cancel(self, action: Callable[[], object]) -> None:
        """Has ``action`` called when the pull is cancelled, at once if it is already."""
        with self._lock:
            self._on_cancel = action
            cancelled = self._cancelled
        if cancelled:
            action()

    def cancel(self) -> None:
        """Ends the pull as soon as it can."""
        with self._lock:
            self._cancelled = True
            action = self._on_cancel
        if action is not None:
            action()


class Transport(Protocol):
    """Moves one tensor here."""

    name: str

    def pull(self, handle: Handle, place: Place, limit: Limit) -> None:
        """Fills ``place`` with the verified bytes behind ``handle``. Blocks; called on a thread.

        Raises:
            LeaseExpired, FingerprintMismatch, TransferCorrupted, Unavailable, DeadlineExceeded.
        """
        ...

    def close(self) -> None:
        """Gives back what the transport holds; pulls under way fail."""
        ...


def fetch_request(handle: Handle) -> FetchRequest:
    """What a holder is asked for."""
    return FetchRequest(lease_id=handle.lease_id, key=handle.key, fingerprint=handle.fingerprint)


def header_of(held: Held) -> TransferHeader:
    """What a holder says about a tensor before its bytes."""
    return TransferHeader(
        key=held.key,
        fingerprint=held.fingerprint,
        tensor=TensorSpec(shape=held.shape, dtype=held.dtype),
        size_bytes=held.size_bytes,
        checksum=held.checksum,
    )


def check_header(handle: Handle, header: TransferHeader) -> None:
    """Compares what is announced with the handle.

    Raises:
        FingerprintMismatch: it hangs on another fingerprint.
        TransferCorrupted: anything else differs; the message names it.
    """
    if header.fingerprint != handle.fingerprint:
        raise FingerprintMismatch(
            f"{handle.source} sent a tensor of {header.fingerprint[:12]} for one of "
            f"{handle.fingerprint[:12]}: make a new handle"
        )
    pairs = {
        "key": (header.key, handle.key),
        "shape": (tuple(header.tensor.shape), handle.shape),
        "dtype": (header.tensor.dtype, handle.dtype),
        "length": (header.size_bytes, handle.size_bytes),
        "checksum": (header.checksum, handle.checksum),
    }
    for name, (announced, expected) in pairs.items():
        if announced != expected:
            raise _corrupted(handle, name)


def check_length(handle: Handle, received: int) -> None:
    """Compares the number of bytes that came with the handle.

    Raises:
        TransferCorrupted: they differ.
    """
    if received != handle.size_bytes:
        raise _corrupted(handle, f"length ({received} of {handle.size_bytes} bytes)")


def check_content(handle: Handle, digest: bytes) -> None:
    """Compares the checksum of what came with the handle.

    Raises:
        TransferCorrupted: they differ.
    """
    if digest != handle.checksum:
        raise _corrupted(handle, "checksum of the bytes")


def _corrupted(handle: Handle, what: str) -> TransferCorrupted:
    return TransferCorrupted(
        f"what came from {handle.source} is not what its handle says: {what}; fetch it again or "
        "make a new handle"
    )
