"""The runtime configuration of each tier, as the processes read it."""

from __future__ import annotations

import hashlib
from typing import Final

from triptych_contract.config import Config, Endpoints
from triptych_contract.names import Port, Tier

from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.desired.platform import Platform
from triptych_operator.json_values import JsonObject
from triptych_operator.runtime import gateway_config, worker_config

KEY: Final = "config.json"


def config_map(service: MultimodalService, tier: Tier, config: str) -> JsonObject:
    """The ConfigMap that pods of ``tier`` mount, with the text of their configuration."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": naming.metadata(service, naming.child(service, tier), tier),
        "data": {KEY: config},
    }


def configuration(service: MultimodalService, tier: Tier, platform: Platform) -> str:
    """The file's text."""
    return f"{_config(service, tier, platform).model_dump_json(indent=2)}\n"


def digest(config: str) -> str:
    """Digest of the file's text: 64 hexadecimal digits."""
    return hashlib.sha256(config.encode()).hexdigest()


def _config(service: MultimodalService, tier: Tier, platform: Platform) -> Config:
    image = platform.image_of(service)
    if tier is not Tier.GATEWAY:
        return worker_config(service, tier, image=image)
    endpoints: dict[Tier, Endpoints] = {
        tier: Endpoints(dns=f"{naming.dns_name(service, tier)}:{Port.GRPC}")
        for tier in service.spec.topology.tiers
        if tier is not Tier.GATEWAY
    }
    return gateway_config(service, endpoints, image=image)
