"""``spec.balance``: how many pods of one tier there may be for each of the next."""

from __future__ import annotations

from typing import ClassVar

from triptych_operator.api.quantities import PositiveQuantity, parse_quantity
from triptych_operator.api.rules import ApiModel, Rule


class Ratio(ApiModel):
    """Bounds of a ratio of pods, such as 500m for one on two. One of them may be left out."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.min) || has(self.max)",
            message="a ratio without bounds says nothing: give min, max or both",
            holds=lambda given: given.min is not None or given.max is not None,
        ),
        Rule(
            cel="!has(self.min) || !has(self.max) || "
            "!quantity(string(self.min)).isGreaterThan(quantity(string(self.max)))",
            message="min of a ratio must not exceed max: lower min or raise max",
            holds=lambda given: (
                given.min is None
                or given.max is None
                or parse_quantity(given.min) <= parse_quantity(given.max)
            ),
        ),
    )

    min: PositiveQuantity | None = None
    """The tier grows with the next one to at least this many pods for each of its pods."""
    max: PositiveQuantity | None = None
    """The tier does not grow beyond this many pods for each pod of the next one."""


class Balance(ApiModel):
    """Bounds of the ratios between autoscaled tiers, beside their own min and max, which hold
    always. The later tier leads: encoders follow prefills, prefills follow decodes."""

    encoder_per_prefill: Ratio | None = None
    """Encoders for each prefill pod; in topology EncodeSplit, for each fused pod."""
    prefill_per_decode: Ratio | None = None
    """Prefills for each decode pod. In topology FullSplit."""
