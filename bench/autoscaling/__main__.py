"""``python -m bench.autoscaling``: ways to scale, over a simulated day. A few minutes.

The tables of docs/autoscaling.md. ``--hours`` makes the day shorter, for a first look.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from triptych_contract.names import Tier

from bench.autoscaling import simulate
from bench.autoscaling.outcomes import Result
from bench.autoscaling.simulate import PICTURES, TEXT, Case, busy, fixed, fused
from bench.autoscaling.trips import Day, Mix


@dataclass(frozen=True, slots=True)
class Table:
    """Services that are compared under one load."""

    title: str
    cases: Sequence[Case]
    mix: Mix
    day: Day
    most: int = 64  # pods of a tier


def tables(hours: float) -> list[Table]:
    """All of them, for days of so many hours."""
    day = Day(hours * 3600, low=0.3, high=3.0)
    quiet = Day(hours * 3600, low=0.02, high=0.3)
    ways = [simulate.WAITING, *map(busy, ("500m", "600m", "700m", "800m"))]
    ways += [simulate.DECODE_BY_ROOM, fused("600m")]
    two = [busy("600m"), fused("600m")]
    rush = Day(hours * 150, low=1.0, high=180.0, burst_every=1800.0)
    return [
        Table("A day of pictures", ways, PICTURES, day),
        Table("A day of text", ways, TEXT, day),
        Table("A quiet day of text", two, TEXT, quiet),
        Table("Nine pods for ever, pictures", nine(3, 2, 4), PICTURES, _steady(hours, 2.6)),
        Table("Nine pods for ever, text", nine(1, 3, 5), TEXT, _steady(hours, 2.2)),
        Table("A rush hour of pictures", two, PICTURES, rush, most=1000),
    ]


def nine(encoder: int, prefill: int, decode: int) -> list[Case]:
    """The same pods apart and fused."""
    name = f"split, {encoder} + {prefill} + {decode}"
    apart = fixed(name, encoder=encoder, prefill=prefill, decode=decode)
    return [apart, fixed("fused, 9", fused=encoder + prefill + decode)]


def main() -> None:
    """Prints the tables; progress goes to stderr."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for table in tables(options.hours):
        print(f"\n### {table.title}\n\n{HEAD}", flush=True)
        for case in table.cases:
            began = time.perf_counter()
            found = simulate.run(case, table.mix, table.day, table.most, options.seed)
            print(row(found), flush=True)
            seconds = time.perf_counter() - began
            print(f"{table.title}, {case.name}: {seconds:.0f} s", file=sys.stderr, flush=True)


def _steady(hours: float, rate: float) -> Day:
    return Day(hours * 900, low=rate, high=rate, burst=1.0)


HEAD = """\
| service | in SLO | TTFT P50, s | P99, s | refused | pod-hours | most pods | good/pod-hour |
|---|---:|---:|---:|---:|---:|---:|---:|"""


def row(found: Result) -> str:
    """One line of a table."""
    tiers = [tier for tier in Tier if tier in found.most]
    hours = " + ".join(f"{found.pod_hours[tier]:.1f}" for tier in tiers)
    most = " + ".join(str(found.most[tier]) for tier in tiers)
    return (
        f"| {found.name} | {found.good:.1%} | {found.ttft_p50:.2f} | {found.ttft_p99:.1f}"
        f" | {found.refused} | {hours} | {most} | {found.good_per_pod_hour:.0f} |"
    )


if __name__ == "__main__":
    main()
