"""PNG files made by hand, so that two can differ in exactly one thing and share all else."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

GREY, RGB, PALETTE = 0, 2, 3
_SAMPLES = {GREY: 1, RGB: 3, PALETTE: 1}


@dataclass(frozen=True)
class Png:
    """A picture as its file says it; ``rows`` are the samples, which several pictures may share."""

    width: int
    height: int
    mode: int
    depth: int
    samples: bytes
    palette: bytes = b""
    note: bytes = b""  # a text chunk, which decoders pass over

    def file(self) -> bytes:
        """The whole file, not compressed."""
        header = struct.pack(">2I5B", self.width, self.height, self.depth, self.mode, 0, 0, 0)
        length = self.width * _SAMPLES[self.mode] * self.depth // 8
        rows = (
            self.samples[start : start + length] for start in range(0, len(self.samples), length)
        )
        parts = [b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", header)]
        if self.palette:
            parts.append(_chunk(b"PLTE", self.palette))
        if self.note:
            parts.append(_chunk(b"tEXt", b"note\0" + self.note))
        content = zlib.compress(b"".join(b"\0" + row for row in rows), 0)
        return b"".join([*parts, _chunk(b"IDAT", content), _chunk(b"IEND", b"")])


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )
