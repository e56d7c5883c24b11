"""The resource that the benchmark makes many of, the field that it changes, and what both operators
make of it. Pure.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final, NamedTuple

from triptych_operator.api.manifests import validate_service
from triptych_operator.api.service import API_VERSION, KIND
from triptych_operator.desired.platform import Platform
from triptych_operator.desired.state import desired_state
from triptych_operator.json_values import JsonObject

COLLECTION: Final = f"/apis/{API_VERSION}/namespaces/{{}}/multimodalservices"
IMAGE: Final = "triptych-worker:bench"
FIELD: Final = ("spec", "tiers", "decode", "drain", "timeout")
VALUES: Final = ("30s", "45s")  # before and after a change
CHANGED_TIER: Final = "decode"

# Words that stand in templates for what differs from resource to resource.
NAME: Final = "name-of-resource"
NAMESPACE: Final = "namespace-of-resource"
UID: Final = "uid-of-resource"

_PLURALS: Final = {
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "NetworkPolicy": "networkpolicies",
    "Service": "services",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Deployment": "deployments",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
}


class Child(NamedTuple):
    """One child as the API server's audit log names it."""

    resource: str
    name: str


def manifest(name: str, value: str = VALUES[0]) -> JsonObject:
    """The resource ``name``: four tiers, the encoder's under an autoscaler."""
    autoscaling: JsonObject = {
        "min": 1,
        "max": 4,
        "metrics": [{"signal": "BacklogTokens", "target": "4096"}],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {
            "model": {"source": "builtin://shapes", "revision": "1", "servedName": "shapes"},
            "topology": "FullSplit",
            "tiers": {
                "encoder": {"autoscaling": autoscaling},
                "decode": {"drain": {"timeout": value}},
            },
        },
    }


def change(value: str) -> JsonObject:
    """The merge patch that changes the field."""
    made: JsonObject = {}
    made[FIELD[-1]] = value
    for part in reversed(FIELD[:-1]):
        made = {part: made}
    return made


def children(name: str) -> frozenset[Child]:
    """Every child that the resource ``name`` should have."""
    return _named(_all_children(), name)


def changed_children(name: str) -> frozenset[Child]:
    """Those that the change makes different."""
    return _named(_children_that_change(), name)


def deployment(name: str) -> Child:
    """The Deployment that the change reaches."""
    return Child("deployments", f"{name}-{CHANGED_TIER}")


def templates() -> JsonObject:
    """What the operator in Go reads: our manifests by value of the field."""
    by_value: JsonObject = {value: [*_manifests(NAME, value, NAMESPACE, UID)] for value in VALUES}
    return {
        "name": NAME,
        "namespace": NAMESPACE,
        "uid": UID,
        "field": list(FIELD),
        "byValue": by_value,
    }


def desired(body: Mapping[str, object]) -> list[JsonObject]:
    """The manifests of a resource as the API server hands it out."""
    return desired_state(validate_service(body, "benchmark"), Platform(image=IMAGE))


@functools.cache
def _all_children() -> frozenset[Child]:
    return frozenset(_child(each) for each in _manifests(NAME, VALUES[0]))


@functools.cache
def _children_that_change() -> frozenset[Child]:
    before, after = _manifests(NAME, VALUES[0]), _manifests(NAME, VALUES[1])
    pairs = zip(before, after, strict=True)
    return frozenset(_child(new) for old, new in pairs if old != new)


def _named(found: frozenset[Child], name: str) -> frozenset[Child]:
    return frozenset(Child(one.resource, one.name.replace(NAME, name)) for one in found)


def _manifests(
    name: str, value: str, namespace: str = "default", uid: str = ""
) -> list[JsonObject]:
    body = manifest(name, value)
    body["metadata"] = {"name": name, "namespace": namespace, "uid": uid}
    return desired(body)


def _child(made: Mapping[str, object]) -> Child:
    metadata = made["metadata"]
    if not isinstance(metadata, dict):
        raise TypeError("a manifest has no metadata")
    return Child(_PLURALS[str(made["kind"])], str(metadata["name"]))
