"""Which version of the schema a cluster has, against the one that this operator knows. Pure.

An operator that reads a resource by another schema than the server stores it by takes fields that
are missing for fields that were not given. So the schema carries a stamp, which the server
publishes to everybody in its OpenAPI document, also to those who may not read definitions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from triptych_operator.api.service import GROUP, KIND, VERSION
from triptych_operator.json_values import Json

# Raise it with the first change of the schema after a release: the order of versions is by it.
REVISION: Final = 1
ANNOTATION: Final = f"{GROUP}/schema"  # of the definition, with the stamp as its value
OPENAPI_PATH: Final = f"/openapi/v3/apis/{GROUP}/{VERSION}"

_DIGITS: Final = 12
_STAMP: Final = re.compile(rf"\(schema ([0-9]+)-([0-9a-f]{{{_DIGITS}}})\)")
_COMPONENT: Final = f"{'.'.join(reversed(GROUP.split('.')))}.{VERSION}.{KIND}"


class Skew(Enum):
    """How the cluster's schema compares with ours."""

    SAME = "same"
    OLDER = "older"
    NEWER_OR_OTHER = "newer or other"


def stamp(schema: Json) -> str:
    """What tells a schema from others: the revision, and a digest of all but its prose."""
    text = json.dumps(_without_prose(schema), sort_keys=True, separators=(",", ":"))
    return f"{REVISION}-{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def stamped(description: str, mark: str) -> str:
    """A description with a stamp in it."""
    return f"{description} (schema {mark})"


def skew(document: Mapping[str, Any], own: str) -> Skew:
    """What the document at ``OPENAPI_PATH`` says of the cluster's schema.

    Args:
        own: the stamp of the schema that we know.
    """
    published = document.get("components", {}).get("schemas", {}).get(_COMPONENT, {})
    found = _STAMP.search(published.get("description", ""))
    if found is None:
        return Skew.OLDER  # from before there were stamps
    revision, digest = found.groups()
    if f"{revision}-{digest}" == own:
        return Skew.SAME
    return Skew.OLDER if int(revision) < int(own.partition("-")[0]) else Skew.NEWER_OR_OTHER


def _without_prose(schema: Json, *, names: bool = False) -> Json:
    """``schema`` without descriptions and messages; ``names``: its fields are names of users'."""
    if isinstance(schema, list):
        return [_without_prose(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_prose(value, names=key == "properties" and not names)
        for key, value in schema.items()
        if names or key not in ("description", "message")
    }
