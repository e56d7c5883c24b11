"""The services that are compared: ways to scale the pools of a split, and a single fused pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import ScalingMetric, Signal

from bench.autoscaling.outcomes import Result, Slo, result
from bench.autoscaling.system import Plan, Scaling, System
from bench.autoscaling.trips import MEASURED, Day, Mix

AFTER_SECONDS: Final = 600.0  # that requests at the end of a day may still take
SLO: Final = Slo(first=3.0, per_token=0.1)
PICTURES: Final = Mix("pictures", 0.8, 256, 100, 128)
TEXT: Final = Mix("text", 0.05, 256, 400, 256)

Metrics = tuple[ScalingMetric, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One service: what each tier scales on, or how many pods it has for ever."""

    name: str
    metrics: Mapping[Tier, Metrics]
    pods: Mapping[Tier, int] | None = None

    def plan(self, most: int) -> Plan:
        """Up to ``most`` pods a tier."""
        scaling = {
            tier: Scaling(1, most, metrics)
            if self.pods is None
            else Scaling(self.pods[tier], self.pods[tier])
            for tier, metrics in self.metrics.items()
        }
        return Plan(self.name, scaling, MEASURED)


def on(**targets: str) -> Metrics:
    """Metrics by signal, such as ``QueueWait="300m"``."""
    return tuple(
        ScalingMetric(signal=Signal(signal), target=target) for signal, target in targets.items()
    )


def split(name: str, encoder: Metrics, prefill: Metrics, decode: Metrics) -> Case:
    """E + P + D."""
    return Case(name, {Tier.ENCODER: encoder, Tier.PREFILL: prefill, Tier.DECODE: decode})


def fixed(name: str, **pods: int) -> Case:
    """A service of so many pods, by tier."""
    tiers = {Tier(tier): count for tier, count in pods.items()}
    return Case(name, dict.fromkeys(tiers, ()), tiers)


_DECODE: Final = on(TimePerOutputToken="80m", KVUtilization="800m")
WAITING: Final = split(
    "split, QueueWait 300m and 500m", on(QueueWait="300m"), on(QueueWait="500m"), _DECODE
)
DECODE_BY_ROOM: Final = split(
    "split, 600m, decode on RunningRequests 48",
    on(StageUtilization="600m", BacklogTokens="8192"),
    on(StageUtilization="600m", BacklogTokens="16384"),
    on(RunningRequests="48", KVUtilization="800m"),
)


def busy(target: str) -> Case:
    """Encoders and prefills kept so busy."""
    return split(
        f"split, StageUtilization {target}",
        on(StageUtilization=target, BacklogTokens="8192"),
        on(StageUtilization=target, BacklogTokens="16384"),
        _DECODE,
    )


def fused(target: str) -> Case:
    """A single pool on the same signals."""
    metrics = on(StageUtilization=target, TimePerOutputToken="80m", KVUtilization="800m")
    return Case(f"fused, StageUtilization {target}", {Tier.FUSED: metrics})


def run(case: Case, mix: Mix, day: Day, most: int, seed: int) -> Result:
    """One service through one day.

    Raises:
        RuntimeError: a request was lost or made up on the way.
    """
    system = System(case.plan(most))
    trips = list(day.trips(mix, seed))
    system.run(trips, day.seconds + AFTER_SECONDS)
    left = sum(trip.ended is None for trip in trips)
    if left != system.inside:
        raise RuntimeError(f"{left} requests have not ended, {system.inside} are in pools")
    return result(case.name, trips, SLO, system.pods_seen)
