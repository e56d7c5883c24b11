"""The latest signals of every tier, between whoever reads them from pods and whoever acts on them.

Pure but for its state; times are seconds of any one clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from triptych_contract.names import Tier

from triptych_operator.api.autoscaling import Signal
from triptych_operator.observed.store import ServiceKey
from triptych_operator.signals.caches import CacheUse


@dataclass(frozen=True, slots=True)
class TierSignals:
    """What one tier measured in one round.

    A signal that no pod could tell of is not in ``values``: nobody answering means no value, never
    0. What counts per pod (``ImagesPerSecond`` and the like) is the sum over the pods that
    answered and, for each ready one that did not, their mean, for an autoscaler divides it by its
    pods; the others are means over what was measured.
    """

    tier: Tier
    at: float  # when the round ended
    pods: int = 0  # running pods that were asked
    answering: int = 0  # of those, the ones whose answer is in ``values``
    values: Mapping[Signal, float] = field(default_factory=dict)
    work: Mapping[str, float] = field(default_factory=dict)  # by pod: requests in hand and leases
    caches: tuple[CacheUse, ...] = ()  # of the pods that answered


class SignalBoard:
    """Holds one ``TierSignals`` per tier of each resource, until it is too old to act on."""

    def __init__(self, lasting: float) -> None:
        self._lasting = lasting
        self._latest: dict[tuple[ServiceKey, Tier], TierSignals] = {}

    def put(self, service: ServiceKey, signals: TierSignals) -> None:
        """The latest of one tier."""
        self._latest[service, signals.tier] = signals

    def of(self, service: ServiceKey, tier: Tier, now: float) -> TierSignals | None:
        """What ``tier`` measured last; ``None`` when that is longer ago than signals last."""
        found = self._latest.get((service, tier))
        return found if found is not None and now - found.at <= self._lasting else None

    def is_told(self, service: ServiceKey, now: float) -> bool:
        """Whether any pod of ``service`` tells something."""
        found = (self.of(service, tier, now) for tier in Tier)
        return any(one is not None and one.answering for one in found)

    def services(self) -> set[ServiceKey]:
        """The resources of which something was put."""
        return {service for service, _ in self._latest}

    def keep(self, services: Collection[ServiceKey]) -> None:
        """Forgets every resource but these."""
        self._latest = {key: one for key, one in self._latest.items() if key[0] in services}
