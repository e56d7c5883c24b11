"""``python -m bench``: all benchmarks, or the parts that are named. Progress on stderr, the tables
for docs/benchmarks.md on stdout. Takes about 30 minutes; the machine should do nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import importlib.metadata
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from bench import crosscheck, overhead, repeated, serving
from bench.model import model_folder
from bench.processes import stop_on_signals
from bench.serving import Plan
from bench.systems import CORES, OURS, SYSTEMS, Tuning

DEFAULT: Final = ("serving", "repeated", "overhead", "encoder", "transfer", "crosscheck")
PARTS: Final = (*DEFAULT, "caches", "operator", "autoscaling")
MODULES: Final = (
    "encoder",
    "transfer",
    "caches",
    "operator",
    "autoscaling",
)  # programs of their own
MODULE_SECONDS: Final = 900.0


def main() -> None:
    """Runs the parts one after the other, each from a clean start."""
    options = _parser().parse_args()
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", file=sys.stderr, flush=True)

    print(f"{_machine()}\n", flush=True)
    model_folder()
    for part in options.parts or DEFAULT:
        say(f"== {part}")
        print(f"\n### {part}\n\n{_run(part, options, say)}", flush=True)
    say("done")


def _run(part: str, options: argparse.Namespace, say: Callable[[str], None]) -> str:
    """One part's tables."""
    if part in MODULES:
        ran = subprocess.run(
            [sys.executable, "-m", f"bench.{part}"],
            stdout=subprocess.PIPE, text=True, timeout=MODULE_SECONDS, check=True,
        )  # fmt: skip
        return ran.stdout
    return asyncio.run(_measure(part, _plan(part, options), say))


async def _measure(part: str, plan: Plan, say: Callable[[str], None]) -> str:
    task = asyncio.current_task()
    if task is not None:
        stop_on_signals(task)
    if part == "serving":
        return serving.report(await serving.compare(plan, say))
    if part == "repeated":
        return repeated.report(await repeated.measure(plan, say))
    if part == "crosscheck":
        return crosscheck.report(await crosscheck.measure(plan, say))
    return overhead.report(await overhead.measure(plan, say))


def _plan(part: str, options: argparse.Namespace) -> Plan:
    everything = {
        "serving": SYSTEMS,
        "repeated": ("vllm", *OURS),
        "overhead": OURS,
        "crosscheck": ("split",),
    }[part]
    environment = dict(pair.split("=", 1) for pair in options.env)
    tuning = Tuning(options.threads, options.transport, options.dtype, environment)
    return Plan(
        systems=tuple(name for name in everything if name in options.systems),
        concurrency=tuple(options.concurrency),
        tokens=tuple(options.tokens),
        rounds=options.rounds,
        vllm_eager=options.vllm_eager,
        tuning=tuning,
    )


def _machine() -> str:
    """One line about where and with what this was measured."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")),
        platform.machine(),
    )  # fmt: skip
    memory = psutil.virtual_memory().total / 2**30
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers")
    )
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return (
        f"{today}, {CORES} cores ({cpu}), {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, {versions}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        type=_part,
        help=f"of {', '.join(PARTS)}; default: all but caches, operator and autoscaling",
    )
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 4, 8])
    parser.add_argument("--tokens", nargs="+", type=int, default=[32, 128])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--vllm-eager", action="store_true", help="without torch.compile")
    parser.add_argument(
        "--threads", type=int, default=CORES, help="of each of our workers (default: the cores)"
    )
    parser.add_argument("--transport", choices=("auto", "grpc", "nixl"), default="auto")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="of all systems"
    )
    parser.add_argument(
        "--env", nargs="*", default=[], metavar="NAME=VALUE", help="for our processes only"
    )
    return parser


def _part(name: str) -> str:
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"no part {name}; there are {', '.join(PARTS)}")
    return name


if __name__ == "__main__":
    main()
