"""Resources for tests: a small valid manifest, with parts replaced."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from triptych_operator.api.manifests import validate_service
from triptych_operator.api.service import MultimodalService

MINIMAL: dict[str, Any] = {
    "apiVersion": "triptych.dev/v1alpha1",
    "kind": "MultimodalService",
    "metadata": {"name": "shapes"},
    "spec": {
        "model": {"source": "builtin://shapes", "revision": "1", "servedName": "shapes"},
        "topology": "FullSplit",
    },
}


def manifest(**changes: object) -> dict[str, Any]:
    """The minimal manifest with ``changes`` by dotted path under spec, dots written ``__``.

    ``manifest(tiers__encoder__replicas=2)``; ``None`` takes a field away.
    """
    body = deepcopy(MINIMAL)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = body["spec"]
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return body


def service(**changes: object) -> MultimodalService:
    """The resource of ``manifest(**changes)``."""
    return validate_service(manifest(**changes), "test")
