"""Decoding one picture. Runs in a child process that may be killed, and imports little."""

from __future__ import annotations

import io
import resource
import warnings
from dataclasses import dataclass
from typing import Final

from PIL import Image, ImageOps

_MIB: Final = 1024 * 1024
# Interpreter, libraries and their reservations of address space; and per pixel: source, decoder's
# own buffers, turned copy, RGB copy and the answer.
_BASE_ADDRESS_SPACE: Final = 1024 * _MIB
_BYTES_PER_PIXEL: Final = 24


@dataclass(frozen=True, slots=True)
class Pixels:
    """8-bit RGB, row by row: ``height * width * 3`` bytes."""

    width: int
    height: int
    rgb: bytes


def limit_memory(max_pixels: int) -> None:
    """Bounds this process's address space, so that a decoder cannot take the machine's memory."""
    bound = _BASE_ADDRESS_SPACE + max_pixels * _BYTES_PER_PIXEL
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The header was checked against the same bound before; this one holds inside the decoder.
    Image.MAX_IMAGE_PIXELS = max_pixels


def decode(content: bytes, kind: str, max_pixels: int) -> Pixels | None:
    """The picture as RGB, turned upright by its EXIF orientation; the first frame of several.

    None if it cannot be decoded: what a decoder says about a hostile file stays here.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=(kind,)) as image:
                if image.width * image.height > max_pixels:
                    return None
                upright = ImageOps.exif_transpose(image).convert("RGB")
        return Pixels(upright.width, upright.height, upright.tobytes())
    except Exception:  # noqa: BLE001 - decoders raise anything, SyntaxError and MemoryError too
        return None
