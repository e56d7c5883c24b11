"""The operator is killed at its every write, or loses the answer: it converges all the same.

For the k-th write of each transition: the operator dies before it reaches the server, dies after,
or lives and never hears the answer. Started again, it must bring about what a fresh creation gives,
and leave nothing else. TRIPTYCH_SWEEP=full tries every k; otherwise a sample is tried.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

import pytest
from cluster.api import ApiError
from cluster.kubectl import Cluster
from cluster.waiting import eventually
from control_plane.faults.proxy import Trap, When
from control_plane.faults.sweep import CONVERGE_TIMES, FULL, MOST_FAILURES
from control_plane.faults.transitions import Transition
from control_plane.faults.trial import SETTLE_SECONDS, Trial, Undisturbed, trial, undisturbed

SAMPLE: Final = 4  # cases of each transition
CONVERGE_SECONDS: Final = 30.0  # from the start of an operator to the end of what it has to do


class Fate(Enum):
    """What becomes of the operator at a write."""

    KILLED_BEFORE = (When.BEFORE, True)
    KILLED_AFTER = (When.AFTER, True)
    ANSWER_LOST = (When.AFTER, False)


@dataclass(frozen=True)
class Case:
    """One crash. ``write`` counts from 1 on."""

    transition: Transition
    write: int
    fate: Fate

    def __str__(self) -> str:
        return f"{self.transition}, write {self.write}, {self.fate.name.lower()}"


def cases(transition: Transition, writes: int) -> list[Case]:
    """Every case, or a sample that is the same in every run."""
    every = [Case(transition, write, fate) for write in range(1, writes + 1) for fate in Fate]
    if FULL or len(every) <= SAMPLE:
        return every
    return random.Random(transition.value).sample(every, SAMPLE)


@dataclass
class Report:
    """What a sweep of one transition found."""

    transition: Transition
    writes: int = 0
    tried: int = 0
    reached: int = 0  # cases that found their write; a run may need fewer than the first did
    slowest: float = 0.0  # seconds from the operator's start, or the lost answer, to convergence
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.transition}: {self.writes} writes, {self.tried} crashes ({self.reached} at a "
            f"write), {len(self.failures)} failed, slowest convergence {self.slowest:.1f} s"
        )


async def crash(one: Trial, case: Case, expected: Undisturbed, report: Report) -> None:
    """Tries one case."""
    when, kills = case.fate.value
    sprung = asyncio.Event()

    async def spring() -> None:
        if kills:
            await one.operator.kill()
        sprung.set()

    async def over() -> bool:
        """The trap has sprung, or all is done and it never will: the write that made it done may be
        the one at which it is about to."""
        done = not await one.amiss(case.transition, expected.wanted)
        return sprung.is_set() or (done and len(one.proxy.writes) < number)

    await one.begin(case.transition)
    number = len(one.proxy.writes) + case.write
    one.proxy.trap = Trap(number, when, spring, closes=kills)
    await one.act(case.transition)
    await eventually(over, f"write {case.write} or the end", seconds=SETTLE_SECONDS)
    one.proxy.heal()
    if not one.operator.running:
        await one.operator.start()
    started = time.monotonic()
    limit = max(CONVERGE_SECONDS, CONVERGE_TIMES * expected.seconds)
    await one.converged(case.transition, expected.wanted, limit)
    report.slowest = max(report.slowest, time.monotonic() - started)
    report.reached += sprung.is_set()


async def attempt(one: Trial, todo: list[Case], expected: Undisturbed, report: Report) -> None:
    """Tries cases one after another, until one fails and leaves the namespace as it is."""
    while todo:
        case = todo.pop()
        report.tried += 1
        try:
            await crash(one, case, expected, report)
            await one.clear()
            print(f"{case}: converged; {len(todo)} left")
        except (TimeoutError, RuntimeError, ApiError) as error:
            report.failures.append(f"{case}: {error}")
            return


async def sweep(kubeconfig: Path, folder: Path, transition: Transition) -> Report:
    """Tries all cases of a transition, in as many namespaces as fail."""
    report = Report(transition)
    todo: list[Case] | None = None
    while (todo is None or todo) and len(report.failures) < MOST_FAILURES:
        async with trial(kubeconfig, folder) as one:
            expected = await undisturbed(one, transition)
            if todo is None:
                report.writes = len(expected.writes)
                todo = cases(transition, report.writes)
            await attempt(one, todo, expected, report)
    return report


@pytest.mark.timeout(4 * 3600)
async def test_a_crash_at_any_write_leads_to_the_same_children(
    cluster: Cluster, tmp_path: Path
) -> None:
    # A deletion makes nothing, and a replacement what a recreation does.
    unlike = (Transition.DELETE, Transition.REPLACE)
    swept = [one for one in Transition if one not in unlike]
    async with asyncio.TaskGroup() as group:
        sweeps = [group.create_task(sweep(cluster.kubeconfig, tmp_path, one)) for one in swept]
    reports = [one.result() for one in sweeps]
    print("", *reports, sep="\n")
    assert [failure for report in reports for failure in report.failures] == []
    for report in reports:
        assert report.reached >= report.tried / 2, f"too few crashes at a write: {report}"


async def test_deletion_while_the_operator_is_down_leaves_nothing_behind(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with trial(cluster.kubeconfig, tmp_path) as one:
        await one.begin(Transition.DELETE)
        await one.operator.kill()
        await one.act(Transition.DELETE)
        await one.converged(Transition.DELETE, {}, SETTLE_SECONDS)
        begun = len(one.proxy.writes)
        await one.operator.start()
        await asyncio.sleep(2)
        assert [call.text for call in one.proxy.writes[begun:]] == []
        assert await one.amiss(Transition.DELETE, {}) == []


async def test_nothing_is_made_anew_while_a_resource_goes(cluster: Cluster, tmp_path: Path) -> None:
    async with trial(cluster.kubeconfig, tmp_path) as one:
        expected = await undisturbed(one, Transition.DELETE)
        # A pod that is about to go may still get a status, and what came before it an Event.
        about = ("/status", " events")
        assert [write for write in expected.writes if not write.endswith(about)] == []
