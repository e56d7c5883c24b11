"""Merges a pod template of the user over ours, as a strategic merge patch of Kubernetes does.

Objects are merged field by field, null takes a field away, and lists whose items have a key in
Kubernetes are merged item by item. Every other list replaces ours.
"""

from __future__ import annotations

from typing import Final

from triptych_operator.json_values import Json, JsonObject

# The field that tells the items of a list apart, by the name of the list.
_MERGE_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
}


def merge(base: JsonObject, patch: JsonObject) -> JsonObject:
    """``patch`` over ``base``; neither is changed."""
    merged = dict(base)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged_value(key, merged.get(key), value)
    return merged


def _merged_value(key: str, ours: Json, theirs: Json) -> Json:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return merge(ours, theirs)
    merge_key = _MERGE_KEYS.get(key)
    if merge_key is not None and isinstance(ours, list) and isinstance(theirs, list):
        return _merged_list(ours, theirs, merge_key)
    if isinstance(theirs, dict):
        return merge({}, theirs)  # its nulls say nothing here
    return theirs


def _merged_list(ours: list[Json], theirs: list[Json], merge_key: str) -> list[Json]:
    """Our items in our order, each with its changes; then their new ones in theirs."""
    items: dict[Json, Json] = {}
    for item in (*ours, *theirs):
        if not isinstance(item, dict) or isinstance(item.get(merge_key), dict | list):
            return theirs  # not a list of such items: the server will say what is wrong with it
        key = item.get(merge_key)
        known = items.get(key)
        items[key] = merge(known if isinstance(known, dict) else {}, item)
    return list(items.values())
