"""Checks of single fields of untrusted messages. Each failure names the field and what it may be.

Limits here bound what a message can make this process allocate before a stage has looked at it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from triptych_contract.errors import InvalidRequest, TooLarge
from triptych_contract.fingerprints import KEY_BYTES

# Bytes of one element, known here without torch.
ELEMENT_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "uint8": 1}
CHECKSUM_BYTES: Final = 16
MAX_DIMENSIONS: Final = 8

_HEX_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]*")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def digest_hex(field: str, value: str) -> str:
    """A whole digest as 64 lower-case hexadecimal digits."""
    if not _HEX_DIGEST.fullmatch(value):
        raise InvalidRequest(f"{field}: must be 64 lower-case hexadecimal digits")
    return value


def key(field: str, value: bytes) -> bytes:
    """A whole cache key."""
    return exact_bytes(field, value, KEY_BYTES)


def exact_bytes(field: str, value: bytes, length: int) -> bytes:
    """Exactly ``length`` bytes."""
    if len(value) != length:
        raise InvalidRequest(f"{field}: must be {length} bytes, not {len(value)}")
    return value


def word(field: str, value: str, *, longest: int = 256, empty: bool = False) -> str:
    """Printable ASCII without spaces, so that it can stand in a log line and in an address."""
    if not value and not empty:
        raise InvalidRequest(f"{field}: must not be empty")
    if len(value) > longest or not _PRINTABLE.fullmatch(value):
        raise InvalidRequest(f"{field}: must be at most {longest} printable ASCII characters")
    return value


def identifier(field: str, value: str) -> str:
    """A name that may be a keyword argument."""
    if not _IDENTIFIER.fullmatch(value):
        raise InvalidRequest(f"{field}: must be an identifier of at most 64 characters")
    return value


def count(field: str, items: Sequence[object], *, least: int = 0, most: int) -> None:
    """Between ``least`` and ``most`` items."""
    if not least <= len(items) <= most:
        raise InvalidRequest(f"{field}: must have {least} to {most} items, not {len(items)}")


def integer(field: str, value: int, *, least: int, most: int) -> int:
    """An integer between ``least`` and ``most``."""
    if not least <= value <= most:
        raise InvalidRequest(f"{field}: must be {least} to {most}, not {value}")
    return value


def number(field: str, value: float, *, least: float, most: float) -> float:
    """A finite number between ``least`` and ``most``."""
    if not math.isfinite(value) or not least <= value <= most:
        raise InvalidRequest(f"{field}: must be {least:g} to {most:g}, not {value}")
    return value


def shape(field: str, sizes: Sequence[int]) -> tuple[int, ...]:
    """One to eight positive sizes."""
    count(field, sizes, least=1, most=MAX_DIMENSIONS)
    if any(size < 1 for size in sizes):
        raise InvalidRequest(f"{field}: sizes must be positive, not {list(sizes)}")
    return tuple(sizes)


def tensor_bytes(field: str, sizes: Sequence[int], dtype: str, *, most: int | None = None) -> int:
    """How many bytes a tensor takes, found without allocating it.

    Raises:
        InvalidRequest: an unknown dtype or a size that is not positive.
        TooLarge: more than ``most`` bytes.
    """
    if dtype not in ELEMENT_BYTES:
        raise InvalidRequest(
            f"{field}.dtype: must be one of {', '.join(ELEMENT_BYTES)}, not {dtype!r:.40}"
        )
    size = math.prod(shape(f"{field}.shape", sizes)) * ELEMENT_BYTES[dtype]
    if most is not None and size > most:
        raise TooLarge(f"{field}: {size} bytes exceed this worker's bound of {most}")
    return size
