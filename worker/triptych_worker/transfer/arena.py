"""One block of bytes per purpose, mapped once, cut into tensors.

Not thread-safe; its owner guards ``allocate`` and ``free``. Views may be used from any thread.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import torch

from triptych_worker.caches.ranges import RangeAllocator
from triptych_worker.transfer.layout import DTYPES, size_of

_ALIGNMENT: Final = 256  # of every tensor: whole cache lines, and what GPU copies like


class Arena:
    """``size_bytes`` of memory, less what alignment cuts off its end.

    Pages are backed when first written, or at once if ``pinned``, which is for machines with a CUDA
    device: copies to and from it then need no staging.
    """

    def __init__(self, size_bytes: int, *, pinned: bool = False) -> None:
        self.size_bytes = size_bytes // _ALIGNMENT * _ALIGNMENT
        self._ranges = RangeAllocator(self.size_bytes)
        self.buffer = _pages(max(self.size_bytes, _ALIGNMENT), pinned=pinned)  # uint8 [size]
        self._bytes = self.buffer.numpy().data

    @property
    def address(self) -> int:
        """Of the first byte, in this process."""
        return self.buffer.data_ptr()

    @property
    def used_bytes(self) -> int:
        """Bytes handed out, alignment included."""
        return self._ranges.used

    def allocate(self, size_bytes: int) -> int | None:
        """Offset of a range of ``size_bytes``, or None when no free range is that long."""
        return self._ranges.allocate(max(-(-size_bytes // _ALIGNMENT), 1) * _ALIGNMENT)

    def free(self, start: int) -> None:
        """Takes a range back.

        Raises:
            KeyError: none was handed out at ``start``.
        """
        self._ranges.free(start)

    def starts(self) -> set[int]:
        """Offsets of all ranges that are handed out."""
        return self._ranges.starts()

    def view(self, start: int, size_bytes: int) -> memoryview:
        """The bytes at ``start``, without copying."""
        return self._bytes[start : start + size_bytes]

    def tensor(self, start: int, shape: Sequence[int], dtype: str) -> torch.Tensor:
        """The bytes at ``start`` as a tensor, without copying.

        Raises:
            InvalidRequest: an element type that does not travel.
        """
        content = self.buffer[start : start + size_of(shape, dtype)]
        return content.view(DTYPES[dtype]).view(tuple(shape))

    def check_integrity(self) -> None:
        """Walks the ranges.

        Raises:
            RuntimeError: they overlap, leave a gap or do not add up.
        """
        self._ranges.check_integrity()


def _pages(size_bytes: int, *, pinned: bool) -> torch.Tensor:
    if pinned:
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    # Mapped rather than torch.empty: huge pages spare a fault per 4 KiB at the first touch.
    mapped = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel built without them
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(mapped, dtype=torch.uint8)
