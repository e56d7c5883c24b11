"""Places in a MultimodalService: walked from the generated schema, and filled with values. Pure."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from mms_builders import manifest
from triptych_operator.crd.definition import definition

ITEM: Final = "[]"  # the only item of a list
KEY: Final = "{}"  # the value of one name of a map
REMOVED: Final = object()  # instead of a value: the field is taken away

Path = tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A node of the schema, at its path: ``("spec", "engine", "args", "[]")``."""

    path: Path
    schema: dict[str, Any]

    @property
    def name(self) -> str:
        """The path in words."""
        return ".".join(self.path)

    @property
    def is_leaf(self) -> bool:
        """Nothing is declared below it."""
        return not _children(self.schema)


def places(path: Path = (), schema: dict[str, Any] | None = None) -> Iterator[Place]:
    """Every place of the resource that a user writes, outer ones first."""
    schema = _whole() if schema is None else schema
    yield Place(path, schema)
    for name, child in _children(schema):
        if (*path, name) != ("status",):
            yield from places((*path, name), child)


def is_in_sample(place: Place) -> bool:
    """Whether ``place`` is in no tier, or in the one that was chosen of those that have it."""
    if place.path[:2] != ("spec", "tiers") or len(place.path) < 4:
        return True
    tier, rest = place.path[2], place.path[3:]
    having = [name for name, schema in _tiers() if _has(schema, rest)]
    return tier == having[zlib.crc32(".".join(rest).encode()) % len(having)]


def resource_with(path: Path, value: object) -> dict[str, Any]:
    """A valid resource but for ``value`` at ``path``, which ``REMOVED`` takes away."""
    return put(resource_around(path), path, value)


def resource_around(path: Path) -> dict[str, Any]:
    """A valid resource that has everything that the parents of ``path`` require."""
    topology = "EncodeSplit" if "fused" in path[:3] else "FullSplit"
    body = manifest(topology=topology)
    if "scaleToZeroAfter" in path:
        body["spec"]["degraded"] = {"onEncoderLoss": "Queue"}
    for depth in range(1, len(path)):
        _fill(body, path[:depth], {} if path[depth] != ITEM else [])
    if "external" in path[:-1]:
        body = put(body, (*path[: path.index("external")], "signal"), "External")
    return body


def put(body: dict[str, Any], path: Path, value: object) -> dict[str, Any]:
    """``body`` with ``value`` at ``path``, whose parents exist; ``body`` stays as it is."""
    changed = deepcopy(body)
    parent = _parent(changed, path)
    if isinstance(parent, list):
        parent[:] = [] if value is REMOVED else [value]
    elif value is REMOVED:
        parent.pop(_key(path), None)
    else:
        parent[_key(path)] = value
    return changed


# What a parent needs to be valid, by its own name; others begin empty.
_REQUIRED: Final[dict[str, Any]] = {
    "model.encoder": {"source": "builtin://shapes", "revision": "2"},
    "autoscaling": {"max": 1000, "metrics": [{"signal": "CPUUtilization", "target": 70}]},
    "metrics.[]": {"signal": "CPUUtilization", "target": 70},
    "[].external": {"name": "queue_depth"},
    "cache": {"capacity": "1Gi"},
    "prefixCache": {"capacity": "1Gi"},
    "external.selector": {"queue": "pictures"},
    "balance.encoderPerPrefill": {"max": "999999999k"},
    "balance.prefillPerDecode": {"max": "999999999k"},
    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
    "policies.[]": {"type": "Pods", "value": 1, "periodSeconds": 60},
    "resources.requests": {"cpu": 1},
    "resources.limits": {"cpu": 2},
}


# The name in a map that stands for all.
_NAMES: Final = {"resources.requests": "cpu", "resources.limits": "cpu"}


def _fill(body: dict[str, Any], path: Path, empty: dict[str, Any] | list[Any]) -> None:
    parent = _parent(body, path)
    content = deepcopy(_REQUIRED.get(".".join(path[-2:]), _REQUIRED.get(path[-1], empty)))
    if isinstance(parent, dict):
        parent.setdefault(_key(path), content)
    elif not parent:
        parent.append(content)


def _parent(body: dict[str, Any], path: Path) -> Any:
    place: Any = body
    for depth, name in enumerate(path[:-1], start=1):
        place = place[0] if name == ITEM else place[_key(path[:depth])]
    return place


def _key(path: Path) -> str:
    return _NAMES.get(".".join(path[-3:-1]), "example") if path[-1] == KEY else path[-1]


def _children(schema: dict[str, Any]) -> Sequence[tuple[str, dict[str, Any]]]:
    children = [*schema.get("properties", {}).items()]
    if isinstance(schema.get("items"), dict):
        children.append((ITEM, schema["items"]))
    if isinstance(schema.get("additionalProperties"), dict):
        children.append((KEY, schema["additionalProperties"]))
    return children


def _tiers() -> Sequence[tuple[str, dict[str, Any]]]:
    return _children(_whole()["properties"]["spec"]["properties"]["tiers"])


def _has(schema: dict[str, Any], path: Path) -> bool:
    children = dict(_children(schema))
    return not path or (path[0] in children and _has(children[path[0]], path[1:]))


@functools.cache
def _whole() -> dict[str, Any]:
    made: Any = definition()
    [version] = made["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema
