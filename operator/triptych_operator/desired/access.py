"""The ServiceAccount that all pods of a resource run as.

No Role is bound to it and its token is not mounted: the gateway finds workers by DNS and no
process of ours calls the API server, so the least privilege is none.
"""

from __future__ import annotations

from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.json_values import JsonObject


def service_account(service: MultimodalService) -> JsonObject:
    """The account of all tiers."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": naming.metadata(service, service.metadata.name),
        "automountServiceAccountToken": False,
    }
