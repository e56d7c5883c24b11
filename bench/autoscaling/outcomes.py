"""What a simulated service came to. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triptych_contract.names import Tier

from bench.autoscaling.trips import Trip
from bench.samples import percentile


@dataclass(frozen=True, slots=True)
class Slo:
    """What a client is promised, in seconds: to the first token, and between two of them on the
    mean of an answer."""

    first: float
    per_token: float

    def kept(self, trip: Trip) -> bool:
        """Whether one request had it; one that was refused or has not ended had not."""
        if trip.first is None or trip.ended is None:
            return False
        per_token = (trip.ended - trip.first) / (trip.output_tokens - 1)
        return trip.first - trip.arrived <= self.first and per_token <= self.per_token


@dataclass(frozen=True, slots=True)
class Result:
    """One service over one day."""

    name: str
    requests: int
    refused: int
    good: float  # share of requests within the promise
    ttft_p50: float
    ttft_p99: float
    pod_hours: Mapping[Tier, float]
    most: Mapping[Tier, int]  # pods at a time

    @property
    def good_per_pod_hour(self) -> float:
        """Requests within the promise for one pod-hour: what the hardware was worth."""
        return self.good * self.requests / sum(self.pod_hours.values())


@dataclass(frozen=True, slots=True)
class PodsSeen:
    """One pool over the day."""

    seconds: float
    most: int


def result(name: str, trips: Sequence[Trip], slo: Slo, pods: Mapping[Tier, PodsSeen]) -> Result:
    """What the requests of a whole day came to."""
    firsts = [trip.first - trip.arrived for trip in trips if trip.first is not None]
    return Result(
        name=name,
        requests=len(trips),
        refused=sum(trip.refused for trip in trips),
        good=sum(map(slo.kept, trips)) / len(trips),
        ttft_p50=percentile(firsts, 50),
        ttft_p99=percentile(firsts, 99),
        pod_hours={tier: seen.seconds / 3600 for tier, seen in pods.items()},
        most={tier: seen.most for tier, seen in pods.items()},
    )
