"""Server-side apply in small: who owns which field, what conflicts, what goes. Pure.

Lists are one field here but for conditions, where the real one merges more of them item by item.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
Path = tuple[str, ...]
_SERVERS = ("uid", "resourceVersion", "generation", "managedFields", "creationTimestamp")


class Conflict(Exception):
    """A field has another value, by another manager."""


@dataclass(frozen=True)
class Applied:
    """One object, and the managers of each of its fields."""

    body: Object
    owners: Mapping[Path, frozenset[str]]

    @staticmethod
    def empty(api_version: str, kind: str, version: int) -> Applied:
        """An object that is about to be made."""
        metadata = {"uid": str(uuid.UUID(int=version)), "generation": 0}
        return Applied({"apiVersion": api_version, "kind": kind, "metadata": metadata}, {})

    def apply(
        self, manifest: Mapping[str, Any], manager: str, version: int, *, force: bool
    ) -> Applied:
        """What results when ``manager`` applies ``manifest``.

        Raises:
            Conflict: another manager has another value, and ``force`` is not given.
        """
        wanted = dict(_leaves(_keyed(_given(manifest))))
        owners = dict(self.owners)
        body = _keyed(self.body)
        for path, value in wanted.items():
            others = owners.get(path, frozenset()) - {manager}
            differs = _at(body, path) != value
            if others and differs and not force:
                raise Conflict(".".join(path))
            owners[path] = (owners.get(path, frozenset()) if not differs else frozenset()) | {
                manager
            }
            _set(body, path, value)
        for path in [path for path, own in owners.items() if manager in own - {""}]:
            stays = any(one[: len(path)] == path for one in wanted)
            if not stays and (path[0] == "status") == ("status" in manifest):
                owners[path] -= {manager}
                if not owners[path]:
                    del owners[path]
                    _remove(body, path)
        body = _listed(body, manifest)
        if body == self.body and owners == self.owners:
            return self  # as if it had not been sent
        return Applied(_stamped(body, self.body, owners, version), owners)


def _given(manifest: Mapping[str, Any]) -> Object:
    metadata = {key: one for key, one in manifest["metadata"].items() if key not in _SERVERS}
    rest = {key: one for key, one in manifest.items() if key not in ("apiVersion", "kind")}
    return {**rest, "metadata": metadata}


def _stamped(
    body: Object, before: Object, owners: Mapping[Path, frozenset[str]], version: int
) -> Object:
    metadata = body["metadata"]
    metadata["resourceVersion"] = str(version)
    if body.get("spec") != before.get("spec"):
        metadata["generation"] += 1
    replicas = owners.get(("spec", "replicas"), frozenset())
    metadata["managedFields"] = [
        {
            "manager": manager,
            "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:replicas": {}} if manager in replicas else {}},
        }
        for manager in sorted({one for own in owners.values() for one in own})
    ]
    return body


def _keyed(body: Object) -> Object:
    """A copy in which the conditions are an object by their type."""
    made = copy.deepcopy(body)
    status = made.get("status", {})
    if isinstance(status.get("conditions"), list):
        status["conditions"] = {one["type"]: one for one in status["conditions"]}
    return made


def _listed(body: Object, manifest: Mapping[str, Any]) -> Object:
    """The reverse of ``_keyed``, in the order of ``manifest``."""
    status = body.get("status", {})
    if isinstance(status.get("conditions"), dict):
        first = [one["type"] for one in manifest.get("status", {}).get("conditions", ())]
        order = dict.fromkeys([*first, *status["conditions"]])
        status["conditions"] = [status["conditions"][type_] for type_ in order]
    return body


def _leaves(value: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, one in value.items():
        if isinstance(one, dict) and one:
            yield from _leaves(one, (*path, key))
        else:
            yield (*path, key), one


def _at(body: Object, path: Path) -> Any:
    place: Any = body
    for key in path:
        place = place.get(key) if isinstance(place, dict) else None
    return place


def _set(body: Object, path: Path, value: Any) -> None:
    place = body
    for key in path[:-1]:
        if not isinstance(place.get(key), dict):
            place[key] = {}
        place = place[key]
    place[path[-1]] = copy.deepcopy(value)


def _remove(body: Object, path: Path) -> None:
    """Takes a field away, and the objects that are empty without it."""
    if len(path) > 1 and isinstance(body.get(path[0]), dict):
        _remove(body[path[0]], path[1:])
        if body[path[0]]:
            return
    body.pop(path[0], None)
