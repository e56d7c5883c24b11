"""One NetworkPolicy per tier: only the edges on a request's path are open.

::

    anybody ──http──> gateway ──grpc──> encoder, prefill, decode, fused
                                        encoder <──tensors── encoder, prefill, fused
                                        prefill <──tensors── decode
    operator ──grpc──> every tier (cache administration), where it is a pod
    anybody ──metrics──> every tier

Who calls for a tensor opens the connection, and the holder answers on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from triptych_contract.names import Port, Tier

from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.desired.platform import Platform
from triptych_operator.json_values import Json, JsonObject

# Who fetches tensors from whom.
TENSORS: Final[dict[Tier, tuple[Tier, ...]]] = {
    Tier.ENCODER: (Tier.ENCODER, Tier.PREFILL, Tier.FUSED),
    Tier.PREFILL: (Tier.DECODE,),
    Tier.FUSED: (Tier.FUSED,),
    Tier.DECODE: (),
    Tier.GATEWAY: (),
}


def network_policy(service: MultimodalService, tier: Tier, platform: Platform) -> JsonObject:
    """The policy of ``tier``'s pods: ingress alone; where they may connect to is not bounded."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": naming.metadata(service, naming.child(service, tier), tier),
        "spec": {
            "podSelector": {"matchLabels": {**naming.selector(service, tier)}},
            "policyTypes": ["Ingress"],
            "ingress": [*_ingress(service, tier, platform)],
        },
    }


def _ingress(service: MultimodalService, tier: Tier, platform: Platform) -> Iterator[Json]:
    if tier is Tier.GATEWAY:
        yield {"ports": [_tcp(Port.HTTP)]}
    yield {"ports": [_tcp(Port.METRICS)]}
    if platform.operator_namespace is not None:
        yield {"ports": [_tcp(Port.GRPC)], "from": [_operator(platform.operator_namespace)]}
    if tier is not Tier.GATEWAY:
        yield {"ports": [_tcp(Port.GRPC)], "from": [_pods(service, Tier.GATEWAY)]}
    # Also of tiers that this topology has not: while it changes, the old ones still serve.
    fetching: list[Json] = [_pods(service, peer) for peer in TENSORS[tier]]
    if fetching:
        yield {**_tensor_ports(service), "from": fetching}


def _tensor_ports(service: MultimodalService) -> JsonObject:
    """gRPC has one port; NIXL's transports listen on ports that the kernel chooses."""
    if service.spec.transfer.transport == "grpc":
        return {"ports": [_tcp(Port.GRPC)]}
    return {}


def _tcp(port: int) -> JsonObject:
    return {"protocol": "TCP", "port": port}


def _pods(service: MultimodalService, tier: Tier) -> JsonObject:
    return {"podSelector": {"matchLabels": {**naming.selector(service, tier)}}}


def _operator(namespace: str) -> JsonObject:
    """The operator's pods. Anybody may give a pod their labels, so only those in ``namespace``."""
    return {
        "namespaceSelector": {"matchLabels": {naming.NAMESPACE: namespace}},
        "podSelector": {"matchLabels": {**naming.operator_selector()}},
    }
