"""The ServiceAccount that all pods of a resource run as.

No Role is bound to it and its token is not mounted: the gateway finds workers by DNS and no
process of ours calls the API server, so the least privilege is none.
"""

from __future__ import annotations

from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.desired.platform import Platform
from triptych_operator.json_values import JsonObject


def service_account(service: MultimodalService, platform: Platform) -> JsonObject:
    """The account of all tiers. It is the first thing made, so it tells which operator makes."""
    metadata = naming.metadata(service, service.metadata.name)
    if platform.installation is not None:
        metadata["annotations"] = {naming.OPERATOR: platform.installation}
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata,
        "automountServiceAccountToken": False,
    }
