"""``spec.rollout``: how a new version of the service takes over from the old one."""

from __future__ import annotations

from pydantic import Field

from triptych_operator.api.rules import ApiModel


class RolloutSpec(ApiModel):
    """How a new version of the service takes over from the old one."""

    surge_percent: int = Field(default=100, ge=1, le=100)
    """How many pods of the new version come up beside the old ones before they take over, in
    percent of each tier. 100 needs room for both versions and never has fewer pods than the tier;
    less needs less room, and serves with as much less until the rest has followed."""
