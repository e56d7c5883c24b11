"""Watches and answers go wrong while a resource changes: what it says stays true, and it converges.

TRIPTYCH_SWEEP=full tries every fault with every transition; otherwise each with one of them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from cluster.api import ApiError
from cluster.kubectl import Cluster
from control_plane.faults import watches
from control_plane.faults.catalog import FAULTS
from control_plane.faults.history import recorded, violations
from control_plane.faults.sweep import CONVERGE_TIMES, FULL, LANES, MOST_FAILURES
from control_plane.faults.transitions import Transition
from control_plane.faults.trial import Trial, Undisturbed, trial, undisturbed

LASTS_SECONDS: Final = 4.0
CONVERGE_SECONDS: Final = 10.0  # from a fault's end
AUDIT_SECONDS: Final = 30.0  # until what no watch ever told is known all the same


@dataclass(frozen=True)
class Case:
    """One fault during one transition."""

    fault: str
    transition: Transition

    def __str__(self) -> str:
        return f"{self.fault}, {self.transition}"


def cases() -> list[Case]:
    """Every pair, or each fault with one transition, such that each of them has its turn."""
    if FULL:
        return [Case(*pair) for pair in itertools.product(FAULTS, Transition)]
    return [Case(*pair) for pair in zip(FAULTS, itertools.cycle(Transition), strict=False)]


async def endure(one: Trial, case: Case, expected: Undisturbed) -> float:
    """Tries one case; gives the seconds from the fault's end to convergence."""
    fault = FAULTS[case.fault]
    await one.begin(case.transition)
    async with recorded(one.api, one.namespace) as history:
        await fault.begin(one.proxy)
        await one.act(case.transition)
        await asyncio.sleep(LASTS_SECONDS)
        await fault.end(one.proxy)
        if fault.fatal:  # it may be about to end; the cluster would start it again
            await one.operator.kill()
            await one.operator.start()
        assert one.operator.running, f"the operator ended:\n{one.operator.tail()}"
        ended = time.monotonic()
        limit = max(CONVERGE_SECONDS, CONVERGE_TIMES * expected.seconds)
        await one.converged(case.transition, expected.wanted, limit)
        took = time.monotonic() - ended
    untrue = violations(history.ordered())
    assert not untrue, "\n".join(untrue)
    return took


async def attempt(one: Trial, todo: list[Case], failures: list[str]) -> None:
    """Tries cases one after another, until one fails and leaves the namespace as it is."""
    expected: dict[Transition, Undisturbed] = {}
    while todo:
        case = todo.pop()
        try:
            if case.transition not in expected:
                expected[case.transition] = await undisturbed(one, case.transition)
            seconds = await endure(one, case, expected[case.transition])
            await one.clear()
        except (TimeoutError, RuntimeError, ApiError, AssertionError) as error:
            failures.append(f"{case}: {error}")
            return
        print(f"{case}: converged {seconds:.1f} s after its end; {len(todo)} left")


async def lane(kubeconfig: Path, folder: Path, todo: list[Case], failures: list[str]) -> None:
    """Tries cases, in as many namespaces as fail."""
    while todo and len(failures) < MOST_FAILURES:
        async with trial(kubeconfig, folder) as one:
            await attempt(one, todo, failures)


@pytest.mark.timeout(3600)
async def test_faults_are_outlived_and_statuses_stay_true(cluster: Cluster, tmp_path: Path) -> None:
    failures: list[str] = []
    todo = cases()[::-1]
    async with asyncio.TaskGroup() as group:
        for _ in range(LANES):
            group.create_task(lane(cluster.kubeconfig, tmp_path, todo, failures))
    assert failures == [], "\n\n".join(failures)


async def test_what_no_watch_ever_tells_is_found_by_the_audit(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with trial(cluster.kubeconfig, tmp_path) as one:
        wanted = (await undisturbed(one, Transition.UPDATE)).wanted
        await one.begin(Transition.UPDATE)
        one.proxy.watches = watches.Silent()
        await one.act(Transition.UPDATE)
        await one.converged(Transition.UPDATE, wanted, 2 * AUDIT_SECONDS)
