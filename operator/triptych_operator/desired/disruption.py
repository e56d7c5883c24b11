"""One PodDisruptionBudget per tier: nodes are emptied one pod at a time."""

from __future__ import annotations

from triptych_contract.names import Tier

from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.json_values import JsonObject


def disruption_budget(service: MultimodalService, tier: Tier) -> JsonObject:
    """The budget of ``tier``. Also a tier of one pod may lose it: a budget that allows no
    disruption at all would hold up every upgrade of a node."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": naming.metadata(service, naming.child(service, tier), tier),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": {**naming.selector(service, tier)}},
            # A pod that is not ready serves nobody; it must not keep a node from being emptied.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
