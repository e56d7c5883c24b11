"""Our load client beside AIPerf, the field's load generator, on the same server and the same load.

Says whether our client measures right, and what each takes from the cores that it shares with the
server. AIPerf makes its own pictures (PNGs of 448x448 noise), so the prompts differ a little.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench.model import model_folder
from bench.pictures import SIDE
from bench.processes import Command, DidNotStart, running
from bench.samples import summarise
from bench.serving import WARM_SEEDS, Plan, start
from bench.systems import Server, log_folder, peers_root
from bench.tables import milliseconds, table

CONCURRENCY: Final = 8
REQUESTS: Final = 24
TOKENS: Final = 32
FIRST_SEED: Final = 4_000_000
SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Line:
    """What one load generator saw. Times are seconds."""

    ttft_p50: float
    requests_per_second: float
    tokens_per_second: float
    own_cpu_seconds: float


async def measure(plan: Plan, say: Callable[[str], None]) -> dict[str, Line]:
    """Both generators on the first server of the plan, ours before and after AIPerf."""
    lines: dict[str, Line] = {}
    async with contextlib.AsyncExitStack() as stack:
        (system, *_) = await start(plan, stack, say)
        if not isinstance(system, Server):
            raise TypeError("AIPerf needs a server")
        await system.load(range(WARM_SEEDS, WARM_SEEDS + CONCURRENCY), CONCURRENCY, TOKENS)
        lines[f"ours, {system.name}"] = await _ours(system, FIRST_SEED)
        say("our client is done")
        lines[f"AIPerf, {system.name}"] = await _aiperf(system)
        say("AIPerf is done")
        lines[f"ours again, {system.name}"] = await _ours(system, FIRST_SEED + REQUESTS)
    return lines


def report(lines: dict[str, Line]) -> str:
    """The generators side by side."""
    head = ["load generator", "TTFT P50 ms", "requests/s", "output tokens/s", "own CPU s"]
    rows = [
        [
            name,
            milliseconds(line.ttft_p50),
            f"{line.requests_per_second:.2f}",
            f"{line.tokens_per_second:.1f}",
            f"{line.own_cpu_seconds:.1f}",
        ]
        for name, line in lines.items()
    ]
    return table(head, rows)


async def _ours(system: Server, first: int) -> Line:
    me = psutil.Process().cpu_times()
    load = await system.load(range(first, first + REQUESTS), CONCURRENCY, TOKENS)
    now = psutil.Process().cpu_times()
    summary = summarise([load])
    return Line(
        summary.ttft_p50,
        summary.requests_per_second,
        summary.tokens_per_second,
        now.user + now.system - me.user - me.system,
    )


async def _aiperf(system: Server) -> Line:
    logs = log_folder()
    artifacts = logs / "aiperf"
    shutil.rmtree(artifacts, ignore_errors=True)
    # Any text here, "0" too, has it look for the folder in the cache of the hub.
    command = Command(
        _aiperf_arguments(system, artifacts), {"HF_HUB_OFFLINE": ""}, logs / "aiperf.log"
    )
    async with running(command) as child:
        cpu = 0.0
        async with asyncio.timeout(SECONDS):
            while child.process.returncode is None:
                cpu = max(cpu, child.cpu_seconds())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(child.process.wait(), 0.5)
        if child.process.returncode:
            raise DidNotStart(f"AIPerf failed; its log ends:\n{child.tail()}")
    (path,) = artifacts.rglob("profile_export_aiperf.json")
    told = json.loads(path.read_text())
    return Line(
        told["time_to_first_token"]["p50"] / 1000,
        told["request_throughput"]["avg"],
        told["output_token_throughput"]["avg"],
        cpu,
    )


def _aiperf_arguments(system: Server, artifacts: Path) -> list[str]:
    return [
        str(peers_root() / "aiperf" / "bin" / "aiperf"), "profile",
        "--model", system.api.model, "--url", system.api.url,
        "--endpoint-type", "chat", "--streaming", "--tokenizer", str(model_folder()),
        "--image-width-mean", str(SIDE), "--image-height-mean", str(SIDE),
        "--image-format", "png", "--isl", "8", "--osl", str(TOKENS),
        "--use-server-token-count", "--extra-inputs", "ignore_eos:true",
        "--extra-inputs", "temperature:0", "--concurrency", str(CONCURRENCY),
        "--request-count", str(REQUESTS), "--num-dataset-entries", str(REQUESTS),
        "--workers-max", "1", "--no-gpu-telemetry", "--no-server-metrics", "--ui", "none",
        "--artifact-dir", str(artifacts),
    ]  # fmt: skip
