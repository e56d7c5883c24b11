"""Label selectors as the API server writes them into a query. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from triptych_contract.errors import InvalidRequest

_LONGEST: Final = 4096  # characters
_KEY: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_EQUALITY: Final = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*({_VALUE})\s*")
_SET: Final = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EXISTENCE: Final = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_BETWEEN: Final = re.compile(r",(?![^()]*\))")  # commas outside of brackets


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement: that a label has, or has not, one of ``values``; any value if empty."""

    key: str
    values: frozenset[str]
    negated: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` meet it. A label that is not there has no value at all."""
        there = self.key in labels and (not self.values or labels[self.key] in self.values)
        return there != self.negated


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that must all hold; without any, everything is selected."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` are selected."""
        return all(one.holds(labels) for one in self.requirements)


def parse_selector(text: str) -> Selector:
    """The selector that ``text`` is, such as ``a=b,c!=d,e in (f,g),h,!i``.

    Raises:
        InvalidRequest: it is none.
    """
    if not text.strip():
        return Selector()
    if len(text) > _LONGEST:
        raise InvalidRequest(f"a label selector of more than {_LONGEST} characters")
    return Selector(tuple(_requirement(part) for part in _BETWEEN.split(text)))


def _requirement(text: str) -> Requirement:
    if found := _EQUALITY.fullmatch(text):
        key, operator, value = found.groups()
        return Requirement(key, frozenset({value}), negated=operator == "!=")
    if found := _SET.fullmatch(text):
        key, operator, listed = found.groups()
        values = frozenset(value.strip() for value in listed.split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(key, values, negated=operator == "notin")
    elif found := _EXISTENCE.fullmatch(text):
        return Requirement(found[2], frozenset(), negated=found[1] == "!")
    raise InvalidRequest(f"not a requirement of a label selector: {text[:80]!r}")
