"""What kind of picture some bytes are and how large, read from the header alone.

Pure and without a decoder, so that nothing is decoded before its size has been checked.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Final

from triptych_contract.errors import InvalidRequest


class Format(StrEnum):
    """The formats that are accepted, by the decoder's name for them."""

    JPEG = "JPEG"
    PNG = "PNG"
    WEBP = "WEBP"
    GIF = "GIF"


# Start-of-frame markers of JPEG; C4, C8 and CC in that range mean something else.
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE: Final = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length


def format_of(content: bytes) -> Format:
    """The format by its first bytes.

    Raises:
        InvalidRequest: empty, or none of the accepted formats.
    """
    if not content:
        raise InvalidRequest("an image is empty")
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return Format.PNG
    if content.startswith(b"\xff\xd8\xff"):
        return Format.JPEG
    if content.startswith((b"GIF87a", b"GIF89a")):
        return Format.GIF
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return Format.WEBP
    raise InvalidRequest("an image is none of JPEG, PNG, WebP or GIF")


def dimensions(content: bytes, kind: Format) -> tuple[int, int]:
    """Width and height that the header states, both at least 1.

    Raises:
        InvalidRequest: the header is cut off, damaged, or states a side of 0.
    """
    try:
        width, height = _READERS[kind](content)
    except (struct.error, IndexError) as error:
        raise InvalidRequest(f"an image's {kind} header is cut off or damaged") from error
    if width < 1 or height < 1:
        raise InvalidRequest(f"an image's {kind} header states no size")
    return width, height


def _png(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", content, 16)
    return width, height


def _gif(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", content, 6)
    return width, height


def _webp(content: bytes) -> tuple[int, int]:
    chunk = content[12:16]
    if chunk == b"VP8X":
        return (
            1 + int.from_bytes(_exactly(content, 24, 3), "little"),
            1 + int.from_bytes(_exactly(content, 27, 3), "little"),
        )
    if chunk == b"VP8L":
        bits = int.from_bytes(_exactly(content, 21, 4), "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if chunk == b"VP8 ":
        width, height = struct.unpack_from("<HH", content, 26)
        return width & 0x3FFF, height & 0x3FFF
    raise IndexError("no such chunk")


def _jpeg(content: bytes) -> tuple[int, int]:
    position = 2
    while True:
        position = content.find(b"\xff", position)
        if position < 0:
            raise IndexError("no frame")
        marker = content[position + 1]
        if marker == 0xFF:  # fill byte
            position += 1
        elif marker in _FRAMES:
            height, width = struct.unpack_from(">HH", content, position + 5)
            return width, height
        elif marker in _BARE or marker == 0:
            position += 2
        else:
            position += 2 + struct.unpack_from(">H", content, position + 2)[0]


def _exactly(content: bytes, offset: int, length: int) -> bytes:
    found = content[offset : offset + length]
    if len(found) < length:
        raise IndexError("cut off")
    return found


_READERS: Final = {Format.JPEG: _jpeg, Format.PNG: _png, Format.WEBP: _webp, Format.GIF: _gif}
