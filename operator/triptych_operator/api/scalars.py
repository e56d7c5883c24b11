"""Strings with a meaning: durations, sources, image references, networks, names."""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Annotated, Final

from pydantic import Field

from triptych_operator.api.rules import Obeys, Rule, matches

_DURATION: Final = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?([0-9]{1,6}ms)?$"
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LABEL: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
NAME_LIMIT: Final = 253  # of names that may hold dots
_CLAIM: Final = rf"{_LABEL}(\.{_LABEL})*"
_SOURCE: Final = (
    r"^(builtin://[a-z0-9][a-z0-9-]*"
    r"|hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*"
    rf"|pvc://{_CLAIM}(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+"
    r"|file:///[^\n]+)$"
)
_SHORT_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL_NAME: Final = rf"^({_CLAIM}/)?{_SHORT_NAME}$"
RESOURCE_NAME: Final = rf"^(cpu|memory|ephemeral-storage|{_CLAIM}/{_SHORT_NAME})$"
_IMAGE: Final = (
    r"^[a-z0-9][a-zA-Z0-9._-]*(:[0-9]+)?(/[a-z0-9._-]+)*(:[a-zA-Z0-9._-]+)?(@sha256:[0-9a-f]{64})?$"
)


def names_rule(field: str, pattern: str, message: str) -> Rule:
    """A rule of an object: every name in its map ``field`` matches ``pattern``."""
    return Rule(
        cel=f"!has(self.{field}) || "
        f"self.{field}.all(k, k.size() <= {NAME_LIMIT} && {_cel_match(pattern, 'k')})",
        message=message,
        holds=lambda given: all(
            len(name) <= NAME_LIMIT and matches(pattern, name) for name in getattr(given, field)
        ),
    )


def label_names_rule(field: str) -> Rule:
    """A rule of an object: every name in its map ``field`` could name a label or annotation."""
    message = (
        f"a name in {field} is none: write NAME or DOMAIN/NAME of letters, digits, dashes, dots "
        "and underscores"
    )
    return names_rule(field, _LABEL_NAME, message)


def _matching(pattern: str, message: str) -> Rule:
    return Rule(_cel_match(pattern), message, functools.partial(matches, pattern))


def _duration(message: str, *, least: str) -> Rule:
    """A rule for durations with a digit of the class ``least`` in them."""
    return Rule(
        cel=f"{_cel_match(_DURATION)} && {_cel_match(least)}",
        message=message,
        holds=lambda value: matches(_DURATION, value) and re.search(least, value) is not None,
    )


def _cel_match(pattern: str, value: str = "self") -> str:
    escaped = pattern.replace("\\", "\\\\")
    return f"{value}.matches('{escaped}')"


def _is_source(value: str) -> bool:
    return matches(_SOURCE, value) and (
        not value.startswith("pvc://") or len(value.split("/")[2]) <= NAME_LIMIT
    )


def _is_network(value: str) -> bool:
    if re.fullmatch(r"[0-9a-fA-F.:]+/(0|[1-9][0-9]{0,2})", value) is None:
        return False  # a zone, a mask or a leading zero, which the API server refuses
    try:
        first = ipaddress.ip_network(value).network_address
    except ValueError:
        return False
    return not (isinstance(first, ipaddress.IPv6Address) and first.ipv4_mapped)


Duration = Annotated[
    str,
    Obeys(
        _duration("not a duration: write 500ms, 30s, 5m, 1h or 1h30m", least="[0-9]"),
        max_length=32,
    ),
]
"""Length of time; read it with ``parse_seconds``."""

PositiveDuration = Annotated[
    str,
    Obeys(
        _duration("not a duration above 0: write 500ms, 30s, 5m, 1h or 1h30m", least="[1-9]"),
        max_length=32,
    ),
]
"""Length of time above 0; read it with ``parse_seconds``."""

ModelSource = Annotated[
    str,
    Obeys(
        Rule(
            cel=f"{_cel_match(_SOURCE)} && (!self.startsWith('pvc://') || "
            f"self.split('/')[2].size() <= {NAME_LIMIT})",
            message="not a model source: write builtin://NAME, hf://ORG/NAME, pvc://CLAIM/PATH or, "
            "with `triptych up` only, file:///DIR",
            holds=_is_source,
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
            rf"^{_CLAIM}$",
            "not the name of a claim: lower-case letters, digits, dashes and single dots",
        ),
        max_length=NAME_LIMIT,
    ),
]
"""Name of a PersistentVolumeClaim in the resource's namespace."""

LabelValue = Annotated[
    str,
    Obeys(
        _matching(
            rf"^({_SHORT_NAME})?$",
            "not the value of a label: letters, digits, dashes, dots and underscores, beginning "
            "and ending with a letter or digit",
        ),
        max_length=63,
    ),
]
"""Value of a label."""

MetricName = Annotated[
    str,
    Obeys(
        _matching(
            r"^[A-Za-z_:][A-Za-z0-9_.:|-]*$",
            "not the name of a metric: letters, digits, underscores, dots, colons, bars and "
            "dashes, not beginning with a digit",
        ),
        max_length=NAME_LIMIT,
    ),
]
"""Name of a metric in an external metrics API or in Prometheus."""

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

# A structural schema cannot say "any scalar". It can say of objects that they have at least one
# field and at most none, which none has, and the same of lists; both say nothing about scalars.
Scalar = Annotated[
    str | int | float | bool | None,
    Field(
        json_schema_extra={
            "minProperties": 1, "maxProperties": 0, "minItems": 1, "maxItems": 0,
        }
    ),
]  # fmt: skip
"""A string, number, boolean or null."""

Text = Annotated[str, Field(min_length=1, max_length=256)]
"""Short text, not empty."""


@functools.lru_cache(maxsize=1024)
def parse_seconds(text: str) -> float:
    """Seconds of a duration such as ``1h30m``.

    Raises:
        ValueError: not a duration.
    """
    if not text or not matches(_DURATION, text):
        raise ValueError(f"not a duration: {text!r}")
    parts = re.findall(r"([0-9]+)(ms|s|m|h)", text)
    return sum(int(number) * _UNIT_SECONDS[unit] for number, unit in parts)
