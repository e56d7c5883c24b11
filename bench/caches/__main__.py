"""``python -m bench.caches``: how often encoders have a picture, and what that is worth."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Final

from bench.caches import alone, reuse, routing
from bench.serving import Plan
from bench.systems import OURS
from bench.tables import milliseconds, table

PARTS: Final = ("routing", "reuse", "alone")
CAPACITY: Final = 500  # pictures in one encoder's cache


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.caches", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=PARTS)
    parts = parser.parse_args().parts or PARTS
    if "routing" in parts:
        print(_routing(), flush=True)
    if "reuse" in parts:
        times = asyncio.run(reuse.measure(Plan(systems=OURS), _say))
        print(f"\n{_reuse(times)}", flush=True)
    if "alone" in parts:
        print(f"\n{alone.report(asyncio.run(alone.measure(_say)))}", flush=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _routing() -> str:
    traffic = routing.Traffic()
    rows = []
    for encoders in ((1,), (2,), (4,), (3, 4), (4, 3)):
        content = routing.simulated(traffic, encoders, CAPACITY, routing.content)
        turns = routing.simulated(traffic, encoders, CAPACITY, routing.round_robin())
        rows.append(
            [
                " then ".join(map(str, encoders)),
                *(_percent(one.here_share) for one in (turns, content)),
                *(_percent(one.encoded_share) for one in (turns, content)),
            ]
        )
    head = [
        "encoders", "in turn: has it", "by content: has it",
        "in turn: encoded", "by content: encoded",
    ]  # fmt: skip
    return table(head, rows)


def _reuse(times: reuse.Times) -> str:
    rows = []
    for name, shares in times.items():
        for kind, place in (("mean", 0), ("P50", 1)):
            columns = [milliseconds(reuse.summary(seconds)[place]) for seconds in shares.values()]
            rows.append([f"{name}, {kind}", *columns])
    return table(["TTFT, ms", *(f"{share} % known" for share in reuse.SHARES)], rows)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    main()
