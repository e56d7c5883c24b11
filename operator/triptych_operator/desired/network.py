"""One NetworkPolicy per tier: only the edges on a request's path are open.

::

    anybody ──http──> gateway ──grpc──> encoder, prefill, decode, fused
                                        encoder <──tensors── encoder, prefill, fused
                                        prefill <──tensors── decode
    operator ──grpc──> every tier (cache administration)
    anybody ──metrics──> every tier

Who calls for a tensor opens the connection, and the holder answers on it.
"""

from __future__ import annotations

from typing import Final

from triptych_contract.names import Port, Tier

from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.json_values import Json, JsonObject

# Who fetches tensors from whom.
TENSORS: Final[dict[Tier, tuple[Tier, ...]]] = {
    Tier.ENCODER: (Tier.ENCODER, Tier.PREFILL, Tier.FUSED),
    Tier.PREFILL: (Tier.DECODE,),
    Tier.FUSED: (Tier.FUSED,),
    Tier.DECODE: (),
    Tier.GATEWAY: (),
}


def network_policy(service: MultimodalService, tier: Tier) -> JsonObject:
    """The policy of ``tier``'s pods: ingress alone; where they may connect to is not bounded."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": naming.metadata(service, naming.child(service, tier), tier),
        "spec": {
            "podSelector": {"matchLabels": {**naming.selector(service, tier)}},
            "policyTypes": ["Ingress"],
            "ingress": _ingress(service, tier),
        },
    }


def _ingress(service: MultimodalService, tier: Tier) -> list[Json]:
    rules: list[Json] = [
        {"ports": [_tcp(Port.METRICS)]},
        {"ports": [_tcp(Port.GRPC)], "from": [_operator()]},
    ]
    if tier is Tier.GATEWAY:
        return [{"ports": [_tcp(Port.HTTP)]}, *rules]
    rules.append({"ports": [_tcp(Port.GRPC)], "from": [_pods(service, Tier.GATEWAY)]})
    # Also of tiers that this topology has not: while it changes, the old ones still serve.
    fetching: list[Json] = [_pods(service, peer) for peer in TENSORS[tier]]
    if fetching:
        rules.append({**_tensor_ports(service), "from": fetching})
    return rules


def _tensor_ports(service: MultimodalService) -> JsonObject:
    """gRPC has one port; NIXL's transports listen on ports that the kernel chooses."""
    if service.spec.transfer.transport == "grpc":
        return {"ports": [_tcp(Port.GRPC)]}
    return {}


def _tcp(port: int) -> JsonObject:
    return {"protocol": "TCP", "port": port}


def _pods(service: MultimodalService, tier: Tier) -> JsonObject:
    return {"podSelector": {"matchLabels": {**naming.selector(service, tier)}}}


def _operator() -> JsonObject:
    """The operator's pods, in whichever namespace they are."""
    return {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {**naming.operator_selector()}},
    }
