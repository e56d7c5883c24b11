"""Watches and answers go wrong while a resource changes: what it says stays true, and it converges.

TRIPTYCH_SWEEP=full tries every fault with every transition; otherwise each with one of them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from cluster.api import ApiError
from cluster.children import Children
from cluster.kubectl import Cluster
from control_plane.faults import watches
from control_plane.faults.catalog import FAULTS
from control_plane.faults.history import recorded, violations
from control_plane.faults.sweep import FULL, LANES
from control_plane.faults.transitions import Transition
from control_plane.faults.trial import Trial, trial, undisturbed

LASTS_SECONDS: Final = 4.0
CONVERGE_SECONDS: Final = 10.0  # from a fault's end
AUDIT_SECONDS: Final = 30.0  # until what no watch ever told is known all the same


@dataclass(frozen=True)
class Case:
    """One fault during one transition."""

    fault: str
    transition: Transition


def cases() -> list[Case]:
    """Every pair, or each fault with one transition, such that each of them has its turn."""
    if FULL:
        return [Case(*pair) for pair in itertools.product(FAULTS, Transition)]
    return [Case(*pair) for pair in zip(FAULTS, itertools.cycle(Transition), strict=False)]


@dataclass
class Report:
    """What was found, and how long each case took to converge after its fault's end."""

    seconds: dict[Case, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


async def endure(one: Trial, case: Case, wanted: Children) -> float:
    """Tries one case; gives the seconds from the fault's end to convergence."""
    fault = FAULTS[case.fault]
    await one.begin(case.transition)
    async with recorded(one.api, one.namespace) as history:
        await fault.begin(one.proxy)
        await one.act(case.transition)
        await asyncio.sleep(LASTS_SECONDS)
        await fault.end(one.proxy)
        if not one.operator.running:
            assert fault.fatal, f"the operator ended:\n{one.operator.tail()}"
            await one.operator.start()
        ended = time.monotonic()
        await one.converged(case.transition, wanted, CONVERGE_SECONDS)
        took = time.monotonic() - ended
    untrue = violations(history.ordered())
    assert not untrue, "\n".join(untrue)
    return took


async def lane(kubeconfig: Path, folder: Path, todo: list[Case], report: Report) -> None:
    """Tries cases one after another; after a failure in another namespace."""
    while todo:
        async with trial(kubeconfig, folder) as one:
            wanted: dict[Transition, Children] = {}
            while todo:
                case = todo.pop()
                try:
                    if case.transition not in wanted:
                        wanted[case.transition] = (await undisturbed(one, case.transition)).wanted
                    report.seconds[case] = await endure(one, case, wanted[case.transition])
                    await one.clear()
                except (TimeoutError, RuntimeError, ApiError, AssertionError) as error:
                    report.failures.append(f"{case}: {error}")
                    break


@pytest.mark.timeout(3600)
async def test_faults_are_outlived_and_statuses_stay_true(cluster: Cluster, tmp_path: Path) -> None:
    report, todo = Report(), cases()[::-1]
    async with asyncio.TaskGroup() as group:
        for _ in range(LANES):
            group.create_task(lane(cluster.kubeconfig, tmp_path, todo, report))
    for case, seconds in report.seconds.items():
        print(f"{case.fault}, {case.transition}: converged {seconds:.1f} s after its end")
    assert report.failures == [], "\n\n".join(report.failures)


async def test_what_no_watch_ever_tells_is_found_by_the_audit(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with trial(cluster.kubeconfig, tmp_path) as one:
        wanted = (await undisturbed(one, Transition.UPDATE)).wanted
        await one.begin(Transition.UPDATE)
        one.proxy.watches = watches.Silent()
        await one.act(Transition.UPDATE)
        await one.converged(Transition.UPDATE, wanted, 2 * AUDIT_SECONDS)
