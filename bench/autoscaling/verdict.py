"""Whether each load grew the pool that it is for, and no other. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from triptych_contract.names import Tier

from bench.autoscaling.load import Outcome
from bench.autoscaling.watch import Reading
from bench.samples import percentile


@dataclass(frozen=True, slots=True)
class Stretch:
    """One phase of the run: when it was, in seconds of the readings, and which pool is to grow."""

    name: str
    start: float
    end: float
    grows: Tier | None


@dataclass(frozen=True, slots=True)
class Line:
    """What a phase came to. Times are seconds."""

    stretch: Stretch
    most: dict[Tier, int]  # pods wanted at most, by tier
    last: dict[Tier, int]  # pods wanted at its end
    pod_seconds: float
    requests: int
    failed: int
    ttft_p50: float
    ttft_p99: float


def line(stretch: Stretch, readings: Sequence[Reading], outcomes: Sequence[Outcome]) -> Line:
    """One phase.

    Raises:
        ValueError: nothing was read during it.
    """
    during = [one for one in readings if stretch.start <= one.at < stretch.end]
    if not during:
        raise ValueError(f"nothing was read during {stretch.name}")
    tiers = during[-1].tiers
    asked = [one for one in outcomes if one.phase == stretch.name]
    firsts = [one.first for one in asked if not one.error] or [0.0]
    return Line(
        stretch=stretch,
        most={tier: max(one.tiers[tier].desired for one in during) for tier in tiers},
        last={tier: tiers[tier].desired for tier in tiers},
        pod_seconds=_pod_seconds(during),
        requests=len(asked),
        failed=sum(bool(one.error) for one in asked),
        ttft_p50=percentile(firsts, 50),
        ttft_p99=percentile(firsts, 99),
    )


def problems(lines: Sequence[Line]) -> list[str]:
    """What did not go as it should, in words; nothing if each load grew its own pool alone, each
    quiet brought it back, and no request failed."""
    found = []
    for one in lines:
        name, grows = one.stretch.name, one.stretch.grows
        if one.failed:
            found.append(f"{name}: {one.failed} of {one.requests} requests failed")
        if grows is None:
            found += [f"{name}: {tier} stays at {n}" for tier, n in one.last.items() if n > 1]
            continue
        if one.most[grows] < 2:
            found.append(f"{name}: {grows} does not grow")
        others = {tier: n for tier, n in one.most.items() if tier is not grows}
        found += [f"{name}: {tier} grows to {n}" for tier, n in others.items() if n > 1]
    return found


def _pod_seconds(readings: Sequence[Reading]) -> float:
    """Ready pods of all scaled tiers over time."""
    return sum(
        (later.at - one.at) * sum(tier.ready for tier in one.tiers.values())
        for one, later in itertools.pairwise(readings)
    )
