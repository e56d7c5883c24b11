"""What the operator knows beside the resource: its own settings."""

from __future__ import annotations

from dataclasses import dataclass

from triptych_operator.api.service import MultimodalService


@dataclass(frozen=True, slots=True)
class Platform:
    """Settings of the operator that reach into manifests."""

    image: str  # of all tiers, unless the resource names another
    pull_policy: str = "IfNotPresent"

    def image_of(self, service: MultimodalService) -> str:
        """The image that all pods of ``service`` run."""
        return service.spec.engine.image or self.image
