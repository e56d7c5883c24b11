"""From histories to the lines of the table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.operator import shape
from bench.operator.history import History
from bench.operator.phases import Plan, Stretch
from bench.operator.systems import LABELS
from bench.samples import percentile
from bench.tables import milliseconds, ratio, table

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Result:
    """One operator's figures. Times in seconds."""

    created: Sequence[float]
    burst_rates: Sequence[float]  # resources per second
    patched: Sequence[float]
    applied: Sequence[float]
    writes_per_change: float
    calls_per_resource: float
    calls_per_reconcile: float
    idle_writes: int
    memory: int  # bytes
    cpu_busy: float
    cpu_idle: float  # per minute


def result_of(name: str, history: History, plan: Plan, stretches: Mapping[str, Stretch]) -> Result:
    """What ``name`` reached."""
    create, change, idle = (stretches[phase] for phase in ("create", "change", "idle"))
    creating = history.between(create.began, create.ended)
    busy = len(creating) + len(history.between(change.began, change.ended))
    reconciles = create.used[name].reconciles + change.used[name].reconciles
    return Result(
        created=history.creations(plan.steady_names()),
        burst_rates=[history.rate(plan.burst_names(burst)) for burst in range(plan.bursts)],
        patched=history.patches(),
        applied=history.applications(),
        writes_per_change=history.writes_per_change(),
        calls_per_resource=len(creating) / plan.resources,
        calls_per_reconcile=busy / reconciles,
        idle_writes=sum(call.writes for call in history.between(idle.began, idle.ended)),
        memory=idle.used[name].memory,
        cpu_busy=create.used[name].cpu_seconds + change.used[name].cpu_seconds,
        cpu_idle=60 * idle.used[name].cpu_seconds / (idle.ended - idle.began),
    )


def report(plan: Plan, results: Mapping[str, Result]) -> str:
    """Two tables, and what they were measured with."""
    count = len(shape.children("any"))
    return "\n\n".join(
        (
            f"{plan.resources} resources of {count} children each per operator; {plan.steady} of "
            f"them made and {plan.changes} changed one by one, one call per {plan.pause:g} s.",
            _times(results),
            _costs(plan, results),
        )
    )


def _times(results: Mapping[str, Result]) -> str:
    head = (
        "operator", "create to children P50, ms", "P99", "change to Deployment P50, ms", "P99",
        "change to all children P50, ms", "P99", "resources/s in a burst",
    )  # fmt: skip
    rows = []
    for name, result in results.items():
        times = [
            milliseconds(percentile(values, percent))
            for values in (result.created, result.patched, result.applied)
            for percent in (50, 99)
        ]
        rates = " ".join(f"{rate:.1f}" for rate in result.burst_rates)
        rows.append([LABELS[name], *times, rates])
    return table(head, [*rows, *_ratios(results)])


def _ratios(results: Mapping[str, Result]) -> list[list[str]]:
    if "ours" not in results:
        return []
    ours, rows = results["ours"], []
    for name, peer in results.items():
        if name == "ours":
            continue
        pairs = (
            (ours.created, peer.created),
            (ours.patched, peer.patched),
            (ours.applied, peer.applied),
        )
        times = [
            ratio(percentile(mine, percent), percentile(theirs, percent))
            for mine, theirs in pairs
            for percent in (50, 99)
        ]
        rate = ratio(sum(ours.burst_rates), sum(peer.burst_rates))
        rows.append([f"ours : {LABELS[name]}", *times, rate])
    return rows


def _costs(plan: Plan, results: Mapping[str, Result]) -> str:
    head = (
        "operator", "API calls per resource made", "API calls per reconcile",
        "writes per child that changes", f"writes in {plan.idle:.0f} s idle", "memory, MiB",
        "CPU seconds, busy", "CPU seconds per minute idle",
    )  # fmt: skip
    rows = [
        [
            LABELS[name],
            f"{result.calls_per_resource:.1f}",
            f"{result.calls_per_reconcile:.2f}",
            f"{result.writes_per_change:.2f}",
            str(result.idle_writes),
            f"{result.memory / MIB:.0f}",
            f"{result.cpu_busy:.1f}",
            f"{result.cpu_idle:.2f}",
        ]
        for name, result in results.items()
    ]
    return table(head, rows)
