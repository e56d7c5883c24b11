"""All systems side by side: every cell of concurrency and answer length, interleaved over systems.

All are up for the whole run and idle but the one that is asked, so that a change in the machine
hits all alike; each round goes through the systems in the other direction. No picture is asked
about twice within one system.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.samples import Load, Summary, same_answers, summarise
from bench.systems import (
    SYSTEMS,
    System,
    Tuning,
    generate_loop,
    log_folder,
    peers_root,
    transformers_serve,
    triptych,
    vllm,
)
from bench.tables import milliseconds, ratio, table

GENERATE: Final = "generate() loop"
VLLM: Final = "vLLM"
FUSED: Final = "Triptych Fused"
FULL_SPLIT: Final = "Triptych FullSplit"
WARM_SEEDS: Final = 1_000_000  # pictures that no cell asks about
IDLE_SECONDS: Final = 3.0
IDLE_SHARE: Final = 0.05  # of a core


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load."""

    concurrency: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how our own processes are set up."""

    systems: tuple[str, ...] = SYSTEMS
    concurrency: tuple[int, ...] = (1, 4, 8)
    tokens: tuple[int, ...] = (32, 128)
    rounds: int = 2
    vllm_eager: bool = False
    tuning: Tuning = field(default_factory=Tuning)

    @property
    def cells(self) -> list[Cell]:
        """Short answers first."""
        return [Cell(many, tokens) for tokens in self.tokens for many in self.concurrency]


def requests_of(cell: Cell) -> int:
    """Requests of one round: four waves, or eight of one request."""
    return 4 * cell.concurrency if cell.concurrency > 1 else 8


Results = dict[Cell, dict[str, list[Load]]]


async def compare(plan: Plan, say: Callable[[str], None]) -> Results:
    """Starts the systems, measures every cell, and ends them."""
    results: Results = defaultdict(lambda: defaultdict(list))
    async with contextlib.AsyncExitStack() as stack:
        systems = await start(plan, stack, say)
        await _warm(systems, plan, say)
        restless = await _restless(systems, say)
        for number in range(plan.rounds):
            order = systems if number % 2 == 0 else systems[::-1]
            for cell in plan.cells:
                for system in order:
                    if number > 0 and cell.concurrency > 1 and not system.batches:
                        continue  # its requests only queue; once is enough
                    seeds = _seeds(plan, cell, number)
                    load = await _measured(system, seeds, cell, paused=system in restless)
                    if load is not None:
                        results[cell][system.name].append(load)
                        say(_line(number, cell, system.name, load))
    return results


async def start(
    plan: Plan, stack: contextlib.AsyncExitStack, say: Callable[[str], None]
) -> list[System]:
    """The systems of the plan, one after the other; a peer that is not installed is left out."""
    logs = log_folder()
    starters = {
        "generate": lambda: generate_loop(logs, plan.tuning.dtype),
        "transformers": lambda: transformers_serve(logs, plan.tuning.dtype),
        "vllm": lambda: vllm(logs, plan.tuning.dtype, eager=plan.vllm_eager),
        "fused": lambda: triptych(logs, "Fused", plan.tuning),
        "split": lambda: triptych(logs, "FullSplit", plan.tuning),
    }
    systems = []
    for name in plan.systems:
        if name in ("transformers", "vllm") and not (peers_root() / name).is_dir():
            say(f"{name}: not installed, left out; `make bench-peers` installs it")
            continue
        say(f"{name}: starting")
        systems.append(await stack.enter_async_context(starters[name]()))
    return systems


async def _warm(systems: Sequence[System], plan: Plan, say: Callable[[str], None]) -> None:
    """Every concurrency once with short answers: compilers and allocators settle."""
    for system in systems:
        say(f"{system.name}: warming up")
        for index, concurrency in enumerate(plan.concurrency):
            if concurrency == 1 or system.batches:
                first = WARM_SEEDS + 100 * index
                await system.load(range(first, first + concurrency), concurrency, 8)


async def _restless(systems: Sequence[System], say: Callable[[str], None]) -> list[System]:
    """Systems that take from the one that is asked while they idle: they are paused meanwhile."""
    before = [system.child.cpu_seconds() for system in systems]
    await asyncio.sleep(IDLE_SECONDS)
    restless = []
    for system, cpu in zip(systems, before, strict=True):
        share = (system.child.cpu_seconds() - cpu) / IDLE_SECONDS
        say(f"{system.name}: {100 * share:.1f} % of a core while idle")
        if share > IDLE_SHARE:
            restless.append(system)
            system.child.pause()
    return restless


def _seeds(plan: Plan, cell: Cell, number: int) -> range:
    """Pictures of one cell and round, the same for every system."""
    first = 1000 * (number * len(plan.cells) + plan.cells.index(cell))
    return range(first, first + requests_of(cell))


async def _measured(
    system: System, seeds: Sequence[int], cell: Cell, *, paused: bool
) -> Load | None:
    """The load; None for a loop at a concurrency that it cannot have."""
    if system.name == GENERATE and cell.concurrency > 1:
        return None
    if not paused:
        return await system.load(seeds, cell.concurrency, cell.tokens)
    system.child.resume()
    try:
        return await system.load(seeds, cell.concurrency, cell.tokens)
    finally:
        system.child.pause()


def _line(number: int, cell: Cell, name: str, load: Load) -> str:
    summary = summarise([load])
    return (
        f"round {number + 1}  concurrency {cell.concurrency}  {cell.tokens:3} tokens  {name:20}"
        f"  TTFT {milliseconds(summary.ttft_p50):>6} ms"
        f"  token {milliseconds(summary.per_token):>5} ms"
        f"  {summary.requests_per_second:.2f} requests/s"
        f"  {summary.tokens_per_second:6.1f} tokens/s  {summary.cores:.2f} cores"
        f"  {summary.core_seconds:.2f} core s per request"
    )


def report(results: Results) -> str:
    """The table of every cell, the targets, and whether all gave the same answers."""
    parts = []
    for cell, loads in results.items():
        summaries = {name: summarise(of_system) for name, of_system in loads.items()}
        parts.append(f"**concurrency {cell.concurrency}, {cell.tokens} output tokens**\n")
        parts.append(_cell_table(summaries) + "\n")
    parts.append(_targets(results))
    parts.append(_agreement(results))
    return "\n".join(parts)


def _cell_table(summaries: dict[str, Summary]) -> str:
    head = [
        "system", "requests", "TTFT P50 ms", "TTFT P99 ms", "ms per output token",
        "requests/s", "output tokens/s", "cores busy", "core s per request",
        "requests/s against vLLM",
    ]  # fmt: skip
    peer = summaries.get(VLLM)
    rows = [
        [
            name,
            str(summary.requests),
            milliseconds(summary.ttft_p50),
            milliseconds(summary.ttft_p99),
            milliseconds(summary.per_token),
            f"{summary.requests_per_second:.2f}",
            f"{summary.tokens_per_second:.1f}",
            f"{summary.cores:.2f}",
            f"{summary.core_seconds:.2f}",
            ratio(summary.requests_per_second, peer.requests_per_second) if peer else "-",
        ]
        for name, summary in summaries.items()
    ]
    return table(head, rows)


def _targets(results: Results) -> str:
    """Ratios that docs/benchmarks.md sets, as far as this run has both sides of them."""
    rates = {
        (cell.concurrency, cell.tokens, name): summarise(loads).requests_per_second
        for cell, of_cell in results.items()
        for name, loads in of_cell.items()
    }
    rows = []
    for tokens in sorted({cell.tokens for cell in results}):
        best = max(rates.get((1, tokens, GENERATE), 0.0), rates.get((1, tokens, VLLM), 0.0))
        split = rates.get((1, tokens, FULL_SPLIT))
        if best and split:
            what = f"FullSplit, concurrency 1, {tokens} tokens: time of the better of (a) and (c)"
            rows.append([what, "at most 1.10x", ratio(best, split)])
        for name, wanted in ((FULL_SPLIT, "at least 1.00x"), (FUSED, "at least 1.20x")):
            ours, peer = rates.get((8, tokens, name)), rates.get((8, tokens, VLLM))
            if ours and peer:
                what = f"{name}, concurrency 8, {tokens} tokens: throughput of (c)"
                rows.append([what, wanted, ratio(ours, peer)])
    return table(["target", "wanted", "measured"], rows) + "\n" if rows else ""


def _agreement(results: Results) -> str:
    """All have the same weights and are greedy: in float32 the answers should be the same."""
    found: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for of_cell in results.values():
        (reference, theirs), *others = of_cell.items()
        expected = [sample for load in theirs for sample in load.samples]
        for name, loads in others:
            mine = [sample for load in loads for sample in load.samples]
            found[name, reference].append(same_answers(expected, mine))
    lines = []
    for (name, reference), counts in sorted(found.items()):
        same, shared = (sum(column) for column in zip(*counts, strict=True))
        lines.append(f"{name}: {same} of {shared} answers are those of {reference}")
    return "\n".join(lines)
