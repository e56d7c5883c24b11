"""JSON schemas for kubeconform, out of what an API server publishes about its own kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.kubectl import Cluster

Schema = dict[str, Any]  # of OpenAPI v3
_KINDS = "x-kubernetes-group-version-kind"
_ANYTHING = "x-kubernetes-preserve-unknown-fields"


def export(cluster: Cluster, folder: Path) -> str:
    """Writes one file per kind and gives kubeconform's pattern of their paths."""
    index = json.loads(cluster.kubectl("get", "--raw", "/openapi/v3"))
    for entry in index["paths"].values():
        path = entry["serverRelativeURL"]
        document = json.loads(cluster.kubectl("get", "--raw", path))
        for name, schema in _files(document.get("components", {}).get("schemas", {})):
            (folder / name).write_text(json.dumps(schema))
    return f"{folder}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"


def _files(schemas: dict[str, Schema]) -> Iterator[tuple[str, Schema]]:
    closed = {name: _closed(schema) for name, schema in schemas.items()}
    for name, schema in schemas.items():
        for kind in schema.get(_KINDS, ()):
            group = kind["group"].split(".")[0]
            parts = [kind["kind"].lower(), group, kind["version"]]
            reference = {"$ref": f"#/components/schemas/{name}"}
            file = f"{'-'.join(part for part in parts if part)}.json"
            yield file, {**reference, "components": {"schemas": closed}}


def _closed(schema: Schema) -> Schema:
    """The schema with nothing allowed that it does not name, which OpenAPI leaves open."""
    made = {key: _closed_value(value) for key, value in schema.items()}
    if "properties" in schema and not schema.get(_ANYTHING):
        made.setdefault("additionalProperties", False)
    if made.get("format") == "int-or-string":
        made = {"type": ["integer", "string"]}
    return made


def _closed_value(value: Any) -> Any:
    if isinstance(value, dict):
        return _closed(value)
    if isinstance(value, list):
        return [_closed_value(one) for one in value]
    return value
