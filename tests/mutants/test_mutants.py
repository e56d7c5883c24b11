"""Faults that are put into the operator on purpose are found by its tests.

TRIPTYCH_SWEEP=full tries all of them, and first that the tests pass where there is none; otherwise
a few are tried, the same in every run.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final

import pytest
from control_plane.faults.sweep import FULL
from mutants.catalog import MUTANTS
from mutants.copies import ALL, Verdict, copy_of_the_tree, first_failure, judge, occurrences
from mutants.places import Mutant

SAMPLE: Final = 3
AT_A_TIME: Final = 2  # each takes a core
SHARE: Final = 0.95  # of all that have to be found

pytestmark = [pytest.mark.processes, pytest.mark.timeout(4 * 3600 if FULL else 600)]


def chosen() -> list[Mutant]:
    """Every mutant, or a few."""
    return list(MUTANTS) if FULL else random.Random(0).sample(MUTANTS, SAMPLE)


async def verdicts(folder: Path, mutants: list[Mutant]) -> list[Verdict]:
    """Judges them, some at a time."""
    gate = asyncio.Semaphore(AT_A_TIME)

    async def one(number: int, mutant: Mutant) -> Verdict:
        async with gate:
            verdict = await judge(mutant, folder / str(number))
        print(f"{verdict.seconds:6.1f} s  {mutant.fault}: {verdict.by or 'NOT FOUND'}", flush=True)
        return verdict

    return await asyncio.gather(*(one(*each) for each in enumerate(mutants)))


def test_every_fault_has_its_one_place_in_the_source() -> None:
    assert [one for one in MUTANTS if occurrences(one) != 1] == []


def test_every_fault_is_another() -> None:
    assert len({one.fault for one in MUTANTS}) == len(MUTANTS)
    assert all(one.old != one.new for one in MUTANTS)


async def test_faults_are_found(tmp_path: Path) -> None:
    if FULL:
        assert await first_failure(copy_of_the_tree(tmp_path / "sound"), ALL) == ""
    found = await verdicts(tmp_path, chosen())
    missed = [one.mutant.fault for one in found if not one.by]
    print(f"{len(found) - len(missed)} of {len(found)} faults found; missed: {missed}")
    assert len(missed) <= (1 - SHARE) * len(found), missed
