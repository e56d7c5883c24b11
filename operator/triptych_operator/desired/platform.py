"""What the operator knows beside the resource: its own settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Platform:
    """Settings of the operator that reach into manifests."""

    image: str  # of all tiers, unless the resource names another
    pull_policy: str = "IfNotPresent"
