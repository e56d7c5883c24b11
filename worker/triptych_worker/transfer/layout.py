"""How dense tensors lie in bytes: element types by name, and sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
import xxhash
from triptych_contract.errors import InvalidRequest

CHECKSUM_BYTES: Final = 16

DTYPES: Final[dict[str, torch.dtype]] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "uint8": torch.uint8,
}
_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """The wire name of ``dtype``.

    Raises:
        InvalidRequest: tensors of this type do not travel.
    """
    try:
        return _NAMES[dtype]
    except KeyError:
        raise InvalidRequest(f"{dtype} does not travel; use one of {', '.join(DTYPES)}") from None


def size_of(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a dense tensor.

    Raises:
        InvalidRequest: a negative dimension, or an element type that does not travel.
    """
    if dtype not in DTYPES:
        raise InvalidRequest(f"{dtype!r} does not travel; use one of {', '.join(DTYPES)}")
    if any(dimension < 0 for dimension in shape):
        raise InvalidRequest(f"shape {tuple(shape)} has a negative dimension")
    return math.prod(shape) * DTYPES[dtype].itemsize


def checksum(content: memoryview) -> bytes:
    """xxh3-128 of ``content``, big-endian. Long content is hashed without the interpreter lock."""
    return xxhash.xxh3_128(content).digest()
