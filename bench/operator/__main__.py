"""Measures our operator beside one in Go on one API server (docs/benchmarks.md).

    python -m bench.operator                                   # about 12 minutes
    python -m bench.operator --resources 20 --idle 10          # a look

Progress on stderr, the tables on stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Final

from bench.operator.measure import measure
from bench.operator.phases import Plan
from bench.operator.results import Result, report
from bench.operator.systems import SYSTEMS
from bench.processes import stop_on_signals

Results = Mapping[str, Result]
LIMIT_SECONDS: Final = 1800.0
PHASE_SECONDS: Final = 300.0
CALM_SECONDS: Final = 5.0


def main() -> None:
    """Measures and prints."""
    options = _parser().parse_args()
    plan = Plan(
        resources=options.resources,
        steady=min(options.steady, options.resources // 2),
        bursts=options.bursts,
        pods=options.pods,
        changes=min(options.changes, options.resources),
        pause=options.pause,
        calm=CALM_SECONDS,
        idle=options.idle,
        limit=PHASE_SECONDS,
    )
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="triptych-bench-") as temporary:
        folder = Path(options.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measuring = measure(plan, options.systems, folder, say, signals=options.signals)
        print(report(plan, asyncio.run(_bounded(measuring))))
    say("done")


async def _bounded(measuring: Coroutine[None, None, Results]) -> Results:
    task = asyncio.current_task()
    if task is not None:
        stop_on_signals(task)
    async with asyncio.timeout(LIMIT_SECONDS):
        return await measuring


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.operator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    add("--resources", type=int, default=1000, help="for each operator")
    add("--steady", type=int, default=40, help="of them made one by one")
    add("--bursts", type=int, default=2, help="in which the others are made")
    add("--pods", action="store_true", help="of all resources, not only of those made one by one")
    add("--changes", type=int, default=60, help="made one by one")
    add("--pause", type=float, default=0.5, help="seconds between calls, whichever operator's")
    add("--signals", action="store_true", help="ours asks pods for theirs, and none answers")
    add("--idle", type=float, default=180.0, help="seconds without a change at the end")
    add("--folder", help="keep logs there")
    return parser


if __name__ == "__main__":
    main()
