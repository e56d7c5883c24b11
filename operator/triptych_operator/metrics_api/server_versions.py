"""API servers that are too old to find the replica that serves. Pure.

From 1.34 on the API server finds an aggregated API by EndpointSlices; up to 1.33 by Endpoints (its
kube-aggregator, ``pkg/apiserver`` and ``pkg/controllers/status/remote``, compared at v0.33.13 and
v0.34.0). The operator writes an EndpointSlice alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

PATH: Final = "/version"
_NEEDED: Final = (1, 34)
_NUMBERS: Final = re.compile(r"v(\d+)\.(\d+)\.")


def too_old(version: Mapping[str, Any]) -> str:
    """What to do where the API server is too old, by what it says of its version; nothing where it
    is not, or says nothing that can be read."""
    said = str(version.get("gitVersion", ""))
    found = _NUMBERS.match(said)
    if found is None or (int(found[1]), int(found[2])) >= _NEEDED:
        return ""
    needed = ".".join(map(str, _NEEDED))
    return (
        f"Kubernetes {said} cannot call the operator, which takes {needed} or newer: upgrade, or "
        "set autoscaling.provider of the chart (--metrics of the operator) to prometheus, keda or "
        "none"
    )
