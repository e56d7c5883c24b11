"""What a resource wants in all, worked out once per version of it.

A resource is looked at again whenever one of its children or pods changes, many times for each
change of its own. Rendering its manifests costs most of such a look, and gives the same each time.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from triptych_contract.names import Tier

from triptych_operator.api.manifests import validate_service
from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.desired.difference import sealed
from triptych_operator.desired.platform import Platform
from triptych_operator.desired.state import desired_state
from triptych_operator.json_values import JsonObject

KEPT: Final = 32  # resources: about 100 KB each


@dataclass(frozen=True, slots=True)
class Wanted:
    """A resource, the revision that each of its tiers should have, and all manifests, sealed."""

    service: MultimodalService
    revisions: dict[Tier, str]
    manifests: tuple[JsonObject, ...]

    def of_tiers(self, tiers: Collection[Tier]) -> list[JsonObject]:
        """The manifests of some tiers, and those that belong to none."""
        return [
            one for one in self.manifests if (tier := naming.tier_of(one)) is None or tier in tiers
        ]


class WantedCache:
    """Works out what resources want, and keeps what was asked for last."""

    def __init__(self, platform: Platform, kept: int = KEPT) -> None:
        self._platform = platform
        self._kept = kept
        self._by_body: OrderedDict[str, Wanted] = OrderedDict()

    def of(self, body: Mapping[str, Any]) -> Wanted:
        """What the resource wants that the API server hands out as ``body``.

        Raises:
            InvalidRequest: it is not a valid resource.
        """
        key = json.dumps([body["metadata"], body.get("spec")])
        wanted = self._by_body.pop(key, None) or self._work_out(body)
        self._by_body[key] = wanted
        if len(self._by_body) > self._kept:
            self._by_body.popitem(last=False)
        return wanted

    def _work_out(self, body: Mapping[str, Any]) -> Wanted:
        metadata = body["metadata"]
        service = validate_service(body, f"{metadata['namespace']}/{metadata['name']}")
        manifests = tuple(sealed(one) for one in desired_state(service, self._platform))
        return Wanted(service, _revisions(manifests), manifests)


def _revisions(manifests: Collection[JsonObject]) -> dict[Tier, str]:
    """The revision that is written into each Deployment's pods."""
    found = {}
    for manifest in manifests:
        tier = naming.tier_of(manifest)
        if tier is not None and manifest["kind"] == "Deployment":
            deployment: Any = manifest
            found[tier] = deployment["spec"]["template"]["metadata"]["labels"][naming.REVISION]
    return found
