"""What a resource made in its namespace, in a form in which two clusters' answers compare equal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from cluster.api import Api, Object

# Every kind that a MultimodalService makes, by the path of its collection.
COLLECTIONS: Final = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Service": "/api/v1/namespaces/{}/services",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
}
SERVICES: Final = "/apis/triptych.dev/v1alpha1/namespaces/{}/multimodalservices"
PODS: Final = "/api/v1/namespaces/{}/pods"

# The namespace's own, made by Kubernetes.
_BUILT_IN: Final = frozenset({("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")})
# What differs between two objects that were made alike.
_OWN_METADATA: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "namespace",
    "managedFields",
)
_ALLOCATED: Final = ("clusterIP", "clusterIPs")
# Counts rollouts, and covers the owner's identity.
_OWN_ANNOTATIONS: Final = ("deployment.kubernetes.io/revision", "triptych.dev/applied")
_SHOWN: Final = 200  # characters of a value in a difference

Children = dict[tuple[str, str], Object]  # by kind and name


async def children(api: Api, namespace: str) -> Children:
    """All objects of the kinds above in ``namespace``, without what is theirs alone."""
    lists = await asyncio.gather(
        *(api.items(one.format(namespace)) for one in COLLECTIONS.values())
    )
    found = {
        (kind, item["metadata"]["name"]): comparable(item)
        for kind, items in zip(COLLECTIONS, lists, strict=True)
        for item in items
    }
    return {key: item for key, item in found.items() if key not in _BUILT_IN}


def comparable(item: Mapping[str, Any]) -> Object:
    """``item`` without status, identity, history and addresses; with what our manager owns."""
    metadata = {key: value for key, value in item["metadata"].items() if key not in _OWN_METADATA}
    metadata["annotations"] = {
        key: value
        for key, value in metadata.get("annotations", {}).items()
        if key not in _OWN_ANNOTATIONS
    }
    metadata["ownerReferences"] = [
        {key: value for key, value in owner.items() if key != "uid"}
        for owner in metadata.get("ownerReferences", [])
    ]
    rest = {
        key: value
        for key, value in item.items()
        if key not in ("metadata", "status", "apiVersion", "kind")
    }
    if "spec" in rest:
        rest["spec"] = {key: one for key, one in rest["spec"].items() if key not in _ALLOCATED}
    return {**rest, "metadata": metadata, "owned": owned_by(item, "triptych")}


def owned_by(item: Mapping[str, Any], manager: str) -> list[Object]:
    """The sets of fields that ``manager`` owns, by how it came to own them."""
    entries = item["metadata"].get("managedFields", [])
    kept = ("operation", "subresource", "apiVersion")
    return [
        {key: one[key] for key in kept if key in one} | {"fields": _fields(one["fieldsV1"])}
        for one in entries
        if one["manager"] == manager
    ]


def _fields(given: Mapping[str, Any]) -> Object:
    """A set of fields without the owner's identity, by which owner references are keyed."""
    metadata = given.get("f:metadata")
    if metadata is None or "f:ownerReferences" not in metadata:
        return {**given}
    return {**given, "f:metadata": {**metadata, "f:ownerReferences": {}}}


def difference(found: Children, wanted: Children) -> list[str]:
    """What stands where something else should, in words; empty when they are the same."""
    lines = [f"{kind} {name} is missing" for kind, name in sorted(wanted.keys() - found.keys())]
    lines += [f"{kind} {name} is left over" for kind, name in sorted(found.keys() - wanted.keys())]
    for key in sorted(found.keys() & wanted.keys()):
        paths = _differing(found[key], wanted[key], "")
        lines += [f"{key[0]} {key[1]}{path}" for path in paths]
    return lines


def _differing(found: object, wanted: object, path: str) -> list[str]:
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = sorted(found.keys() | wanted.keys())
        return [
            line
            for key in keys
            for line in _differing(found.get(key), wanted.get(key), f"{path}.{key}")
        ]
    if found == wanted:
        return []
    return [f"{path} is {repr(found)[:_SHOWN]}, not {repr(wanted)[:_SHOWN]}"]
