"""Quantities of Kubernetes: numbers with a suffix such as ``500m`` or ``16Gi``."""

from __future__ import annotations

import functools
import re
from decimal import Decimal
from typing import Annotated, Final

from triptych_operator.api.rules import NumberOrText, matches

_SUFFIXES: Final[dict[str, Decimal]] = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
}  # fmt: skip
# Each has so many digits that its value stays below 2**63, where Kubernetes would cap it unseen.
_QUANTITY: Final = (
    r"^([0-9]{1,15}(\.[0-9]{1,9})?[num]?"
    r"|[0-9]{1,9}(\.[0-9]{1,9})?([kM]|[KM]i)"
    r"|[0-9]{1,6}(\.[0-9]{1,9})?([GT]|[GT]i|[eE][+-]?[0-9]))$"
)
# In thousandths, since an autoscaler computes in these.
_POSITIVE: Final = (
    r"^([1-9][0-9]{0,8}(\.[0-9]{1,3}|[mkM])?|0\.([1-9][0-9]{0,2}|0[1-9][0-9]?|00[1-9]))$"
)
_BYTES: Final = r"^([0-9]{1,15}|[0-9]{1,9}([kM]|[KM]i)|[0-9]{1,6}([GT]|[GT]i))$"
_SOME_BYTES: Final = r"^([1-9][0-9]{0,14}|[1-9][0-9]{0,8}([kM]|[KM]i)|[1-9][0-9]{0,5}([GT]|[GT]i))$"

Quantity = Annotated[
    str,
    NumberOrText(
        _QUANTITY,
        "not a Kubernetes quantity: write 2, 500m, 0.5, 16Gi or the like, not negative",
        maximum=10**15 - 1,
    ),
]
"""Kubernetes quantity such as ``500m`` or ``16Gi``; read it with ``parse_quantity``."""

PositiveQuantity = Annotated[
    str,
    NumberOrText(
        _POSITIVE,
        "not a quantity above 0: write 2, 500m, 0.5, 20k or the like",
        minimum=1,
        maximum=10**9 - 1,
    ),
]
"""Kubernetes quantity above 0; read it with ``parse_quantity``."""

Bytes = Annotated[
    str,
    NumberOrText(
        _BYTES, "not a size: write bytes as 1048576, 512Mi, 2Gi or 10G", maximum=10**15 - 1
    ),
]
"""Size in whole bytes as a Kubernetes quantity; read it with ``parse_bytes``."""

PositiveBytes = Annotated[
    str,
    NumberOrText(
        _SOME_BYTES,
        "not a size above 0: write bytes as 1048576, 512Mi, 2Gi or 10G",
        minimum=1,
        maximum=10**15 - 1,
    ),
]
"""Size of at least a byte; read it with ``parse_bytes``."""


@functools.lru_cache(maxsize=1024)
def parse_quantity(text: str) -> Decimal:
    """The value of a Kubernetes quantity.

    Raises:
        ValueError: not a quantity, or beyond what we take.
    """
    if not matches(_QUANTITY, text):
        raise ValueError(f"not a quantity: {text!r}")
    number, suffix = _split(text)
    return Decimal(number) * _power(suffix)


def _split(quantity: str) -> tuple[str, str]:
    number = re.match("[0-9.]*", quantity)
    end = number.end() if number else 0
    return quantity[:end], quantity[end:]


def _power(suffix: str) -> Decimal:
    if suffix[:1] in ("e", "E"):
        return Decimal(1).scaleb(int(suffix[1:]))
    return _SUFFIXES[suffix]


def is_whole(text: str) -> bool:
    """Whether a quantity is a whole number in the eyes of CEL, to which ``2k`` is one and ``2000m``
    is none."""
    number, suffix = _split(text)
    decimals = len(number.partition(".")[2])
    if suffix.endswith("i"):
        return not decimals
    return decimals <= _power(suffix).adjusted()


def parse_bytes(text: str) -> int:
    """Bytes of a size such as ``512Mi``.

    Raises:
        ValueError: not a size in whole bytes.
    """
    value = parse_quantity(text)
    if value != int(value):
        raise ValueError(f"not a whole number of bytes: {text!r}")
    return int(value)
