"""The whole CustomResourceDefinition as data, and as the text of its file. Pure.

There is no scale subresource: it names one number of pods, and a resource has one for each tier.
"""

from __future__ import annotations

import functools
from typing import Final

import yaml

from triptych_operator.api.service import GROUP, KIND, PLURAL, VERSION, MultimodalService
from triptych_operator.api.status import UNSEEN, ServiceStatus
from triptych_operator.crd import version
from triptych_operator.crd.schema import structural_schema
from triptych_operator.json_values import Json, JsonObject

FILE_NAME: Final = f"{GROUP}_{PLURAL}.yaml"
_HEADER: Final = (
    "# Generated from operator/triptych_operator/api by `make generate`; edits here are lost.\n"
)


def definition() -> JsonObject:
    """The CustomResourceDefinition of MultimodalService."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            "annotations": {version.ANNOTATION: schema_stamp()},
        },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["mms"],
                "categories": ["triptych"],
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def text() -> str:
    """The file of ``crds/``."""
    body = yaml.dump(definition(), Dumper=_Dumper, sort_keys=False, width=100)
    return f"{_HEADER}{body}"


@functools.cache
def schema_stamp() -> str:
    """The stamp of this definition's schema (``crd.version``)."""
    return version.stamp(_unstamped_schema())


class _Dumper(yaml.SafeDumper):
    """Writes every value out, without anchors for those that occur twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _version() -> JsonObject:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": list(_columns()),
        "schema": {"openAPIV3Schema": _schema()},
    }


def _schema() -> JsonObject:
    schema = _unstamped_schema()
    return schema | {"description": version.stamped(str(schema["description"]), schema_stamp())}


def _unstamped_schema() -> JsonObject:
    schema = structural_schema(MultimodalService)
    properties = schema["properties"]
    if not isinstance(properties, dict):
        raise TypeError("the resource has no properties")
    # The API server owns these three, and refuses a schema that says more about them.
    properties |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        # kstatus takes a custom resource without a status for a healthy one.
        "status": structural_schema(ServiceStatus) | {"default": {"observedGeneration": UNSEEN}},
    }
    return schema | {"required": ["spec"]}


def _columns() -> tuple[Json, ...]:
    return (
        _column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        _column("Topology", ".spec.topology"),
        _column("E", '.status.tiers[?(@.name=="encoder")].pods'),
        _column("P", '.status.tiers[?(@.name=="prefill")].pods'),
        _column("D", '.status.tiers[?(@.name=="decode")].pods'),
        _column("F", '.status.tiers[?(@.name=="fused")].pods'),
        _column("G", '.status.tiers[?(@.name=="gateway")].pods') | {"priority": 1},
        _column("Epoch", ".status.caches.epoch") | {"type": "integer"},
        _column("Limiting", ".status.limitingTier") | {"priority": 1},
        _column("URL", ".status.url"),
        _column("Reason", '.status.conditions[?(@.type=="Ready")].reason') | {"priority": 1},
        _column("Age", ".metadata.creationTimestamp") | {"type": "date"},
    )


def _column(name: str, path: str) -> dict[str, Json]:
    return {"name": name, "type": "string", "jsonPath": path}
