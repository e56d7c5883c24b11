"""Manifests in the form in which the API server keeps them. Pure.

What we want is compared with what stands, so the two must be written alike: ``1000m`` of CPU is
kept as ``1``, ``1024Mi`` as ``1Gi``, and a switch that is off is not kept at all.
"""

from __future__ import annotations

from decimal import ROUND_UP, Decimal
from typing import Final

from triptych_operator.api.quantities import parse_quantity
from triptych_operator.json_values import Json, JsonObject

_NANO: Final = Decimal("1e-9")
_MILLI: Final = Decimal("1e-3")
_DECIMAL_SUFFIXES: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

# Fields of pods that the server drops when they say no more than their absence does. Others, such
# as allowPrivilegeEscalation, say something when they are false.
_DROPPED_WHEN_EMPTY: Final = frozenset(
    {
        "value", "readOnly", "subPath", "subPathExpr", "medium", "tty", "stdin", "stdinOnce",
        "workingDir", "hostNetwork", "hostPID", "hostIPC", "nodeName", "hostname", "subdomain",
        "priorityClassName",
    }
)  # fmt: skip
_OF_USERS: Final = frozenset({"nodeSelector", "matchLabels"})  # whose fields have any names


def canonical(quantity: str | float, smallest: Decimal = _NANO) -> str | float:
    """A quantity as the server writes it: the whole number with the largest suffix, rounded up to
    ``smallest``. What is none is left for the server to refuse."""
    text = quantity if isinstance(quantity, str) else f"{Decimal(str(quantity)):f}"
    try:
        value = parse_quantity(text).quantize(smallest, ROUND_UP)
    except ValueError:
        return quantity
    if text.endswith("i") and value >= 1024 and value == int(value):
        return _with_suffix(int(value), 1024, _BINARY_SUFFIXES)
    return _with_suffix(int(value / _NANO), 1000, _DECIMAL_SUFFIXES)


def resource_list(quantities: JsonObject) -> JsonObject:
    """Requests or limits of a container, which know nothing below a thousandth."""
    return {name: _canonical_or_kept(quantity, _MILLI) for name, quantity in quantities.items()}


def pod_spec(spec: JsonObject) -> JsonObject:
    """A PodSpec, of which any part may have been written by the user."""
    return {name: _pod_field(name, value) for name, value in spec.items() if _says(name, value)}


def _pod_field(name: str, value: Json) -> Json:
    if isinstance(value, list):
        return [pod_spec(item) if isinstance(item, dict) else item for item in value]
    if name == "sizeLimit":
        return _canonical_or_kept(value, _NANO)
    if not isinstance(value, dict) or name in _OF_USERS:
        return value
    if name in ("requests", "limits"):
        return resource_list(value)
    return pod_spec(value)


def _says(name: str, value: Json) -> bool:
    return value is not None and (bool(value) or name not in _DROPPED_WHEN_EMPTY)


def _canonical_or_kept(value: Json, smallest: Decimal) -> Json:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return canonical(value, smallest)
    return value


def _with_suffix(number: int, step: int, suffixes: tuple[str, ...]) -> str:
    if number == 0:
        return "0"
    power = 0
    while number % step == 0 and power + 1 < len(suffixes):
        number //= step
        power += 1
    return f"{number}{suffixes[power]}"
