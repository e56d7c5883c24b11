"""Strings with a meaning: quantities, durations, sources, image references, networks."""

from __future__ import annotations

import functools
import ipaddress
import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import Field

from triptych_operator.api.rules import NumberOrText, Obeys, Rule, matches

_SUFFIXES: Final[dict[str, Decimal]] = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_SUFFIX: Final = r"([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$"
_QUANTITY: Final = r"^[0-9]{1,18}(\.[0-9]{1,9})?" + _SUFFIX
_POSITIVE: Final = (
    r"^([0-9]{0,8}[1-9][0-9]{0,9}(\.[0-9]{1,9})?|[0-9]{1,18}\.[0-9]{0,4}[1-9][0-9]{0,4})" + _SUFFIX
)
_BYTES: Final = r"^[0-9]{1,18}([kMGTPE]|[KMGTPE]i)?$"
_DURATION: Final = r"^([0-9]{1,9}(ms|s|m|h))+$"
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SOURCE: Final = (
    r"^(builtin://[a-z0-9][a-z0-9-]*"
    r"|hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*"
    r"|pvc://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+"
    r"|file:///[^\n]+)$"
)
_IMAGE: Final = (
    r"^[a-z0-9][a-zA-Z0-9._-]*(:[0-9]+)?(/[a-z0-9._-]+)*(:[a-zA-Z0-9._-]+)?(@sha256:[0-9a-f]{64})?$"
)


def _matching(pattern: str, message: str) -> Rule:
    escaped = pattern.replace("\\", "\\\\")
    return Rule(f"self.matches('{escaped}')", message, functools.partial(matches, pattern))


def _is_network(value: str) -> bool:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return False
    return True


Quantity = Annotated[
    str,
    NumberOrText(
        _QUANTITY, "not a Kubernetes quantity: write 2, 500m, 0.5, 16Gi or the like, not negative"
    ),
]
"""Kubernetes quantity such as ``500m`` or ``16Gi``; read it with ``parse_quantity``."""

PositiveQuantity = Annotated[
    str,
    NumberOrText(
        _POSITIVE, "not a quantity above 0: write 2, 500m, 0.5, 20k or the like", minimum=1
    ),
]
"""Kubernetes quantity above 0; read it with ``parse_quantity``."""

Bytes = Annotated[
    str, NumberOrText(_BYTES, "not a size: write bytes as 1048576, 512Mi, 2Gi or 10G")
]
"""Size in whole bytes as a Kubernetes quantity; read it with ``parse_bytes``."""

Duration = Annotated[
    str,
    Obeys(
        _matching(_DURATION, "not a duration: write 500ms, 30s, 5m, 1h or 1h30m"),
        max_length=32,
    ),
]
"""Length of time; read it with ``parse_seconds``."""

ModelSource = Annotated[
    str,
    Obeys(
        _matching(
            _SOURCE,
            "not a model source: write builtin://NAME, hf://ORG/NAME, pvc://CLAIM/PATH or, with "
            "`triptych up` only, file:///DIR",
        ),
        max_length=512,
    ),
]
"""Where a model's files come from."""

ImageReference = Annotated[
    str,
    Obeys(
        _matching(_IMAGE, "not an image reference: write REGISTRY/NAME:TAG or NAME@sha256:DIGEST"),
        max_length=512,
    ),
]
"""Container image."""

ClaimName = Annotated[
    str,
    Obeys(
        _matching(
            r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
            "not the name of a claim: lower-case letters, digits, dashes and dots",
        ),
        max_length=253,
    ),
]
"""Name of a PersistentVolumeClaim in the resource's namespace."""

Network = Annotated[
    str,
    Obeys(
        Rule(
            "isCIDR(self) && cidr(self) == cidr(self).masked()",
            "not a network: write CIDR such as 10.0.0.0/8",
            _is_network,
        ),
        max_length=64,
    ),
]
"""IP network in CIDR notation, without host bits."""

Text = Annotated[str, Field(min_length=1, max_length=256)]
"""Short text, not empty."""


def parse_quantity(text: str) -> Decimal:
    """The value of a Kubernetes quantity.

    Raises:
        ValueError: not a quantity.
    """
    found = re.match(r"([0-9.]+)(.*)\Z", text)
    if found is None or re.match(_QUANTITY, text) is None:
        raise ValueError(f"not a quantity: {text!r}")
    number, suffix = found.groups()
    if suffix[:1] in ("e", "E") and suffix[1:]:
        return Decimal(number).scaleb(int(suffix[1:]))
    return Decimal(number) * _SUFFIXES[suffix]


def parse_bytes(text: str) -> int:
    """Bytes of a size such as ``512Mi``.

    Raises:
        ValueError: not a size in whole bytes.
    """
    value = parse_quantity(text)
    if value != int(value):
        raise ValueError(f"not a whole number of bytes: {text!r}")
    return int(value)


def parse_seconds(text: str) -> float:
    """Seconds of a duration such as ``1h30m``.

    Raises:
        ValueError: not a duration.
    """
    if re.match(_DURATION, text) is None:
        raise ValueError(f"not a duration: {text!r}")
    parts = re.findall(r"([0-9]+)(ms|s|m|h)", text)
    return sum(int(number) * _UNIT_SECONDS[unit] for number, unit in parts)
