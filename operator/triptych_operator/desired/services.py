"""One Service per tier: headless for workers, whose pods are chosen one by one."""

from __future__ import annotations

from triptych_contract.names import Port, Tier

from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.json_values import Json, JsonObject


def service(resource: MultimodalService, tier: Tier) -> JsonObject:
    """The Service of ``tier``; the gateway's name and port are the same in every topology."""
    spec: JsonObject = {
        "type": "ClusterIP",
        "selector": {**naming.selector(resource, tier)},
        "ports": _ports(tier),
    }
    if tier is not Tier.GATEWAY:
        spec["clusterIP"] = "None"
        # Gateways ask each worker whether it serves, also those that a rollout holds back.
        spec["publishNotReadyAddresses"] = True
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": naming.metadata(resource, naming.child(resource, tier), tier),
        "spec": spec,
    }


def _ports(tier: Tier) -> list[Json]:
    port, name = (Port.HTTP, "http") if tier is Tier.GATEWAY else (Port.GRPC, "grpc")
    protocol = "http" if tier is Tier.GATEWAY else "kubernetes.io/h2c"
    return [
        {
            "name": name,
            "port": port,
            "targetPort": name,
            "protocol": "TCP",
            "appProtocol": protocol,
        }
    ]
