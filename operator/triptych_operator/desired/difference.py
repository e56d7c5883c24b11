"""Whether what stands in the cluster is what is wanted. Pure.

A manifest carries its own digest as an annotation. A child is as wanted when it has that digest,
which tells that the very same fields were applied, and when every one of those fields still has
its value, which tells that nobody changed one since. Fields that others added are theirs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from triptych_operator.api.service import GROUP
from triptych_operator.json_values import Json, JsonObject

APPLIED: Final = f"{GROUP}/applied"  # annotation: digest of the manifest last applied
_DIGITS: Final = 32

# Lists whose items others may add to: the server merges them item by item.
_MERGED: Final = frozenset(
    {
        "containers", "initContainers", "ephemeralContainers", "env", "volumes", "volumeMounts",
        "ports", "ownerReferences", "imagePullSecrets", "topologySpreadConstraints", "hostAliases",
        "secrets", "volumeDevices",
    }
)  # fmt: skip


def sealed(manifest: JsonObject) -> JsonObject:
    """The manifest with its digest in it."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
    metadata = manifest["metadata"]
    if not isinstance(metadata, dict):
        raise TypeError("a manifest without metadata")
    annotations = metadata.get("annotations")
    own = annotations if isinstance(annotations, dict) else {}
    return {**manifest, "metadata": {**metadata, "annotations": {**own, APPLIED: digest}}}


def is_as_wanted(manifest: Mapping[str, Any], standing: Mapping[str, Any]) -> bool:
    """Whether ``standing`` has every field of the sealed ``manifest``, and no more of ours."""
    return all(
        covers(standing.get(name), value)
        for name, value in manifest.items()
        if name not in ("apiVersion", "kind")
    )


def covers(standing: Any, wanted: Json, field: str = "") -> bool:
    """Whether every value in ``wanted`` stands in ``standing``."""
    if isinstance(wanted, Mapping):
        return _covers_object(standing, wanted)
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return _covers_list(standing, wanted, field)
    return bool(standing == wanted and type(standing) is type(wanted))


def _covers_object(standing: Any, wanted: Mapping[str, Json]) -> bool:
    if not wanted:
        return standing is None or isinstance(standing, Mapping)  # the server drops empty ones
    return isinstance(standing, Mapping) and all(
        covers(standing.get(name), value, name) for name, value in wanted.items()
    )


def _covers_list(standing: Any, wanted: Sequence[Json], field: str) -> bool:
    found = [] if standing is None else standing  # the server drops empty ones
    if not isinstance(found, list):
        return False
    if field in _MERGED:
        return all(any(covers(one, value) for one in found) for value in wanted)
    return len(found) == len(wanted) and all(
        covers(one, value) for one, value in zip(found, wanted, strict=True)
    )
