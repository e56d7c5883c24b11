"""A copy of the operator with one fault in it, and the tests that are to find it."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from mutants.places import Mutant

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = Path("operator/triptych_operator")
TESTS: Final = Path("tests/triptych_operator")
CORE: Final = [TESTS / "controller/test_applier.py", TESTS / "controller/test_reconcile.py"]
ALL: Final = [
    TESTS / folder
    for folder in (
        *("observed", "desired", "status", "rollout", "cluster", "controller"),
        *("signals", "scaling", "metrics_api"),
    )
]
FAST: Final = "not torch and not processes and not cluster"
RUN_SECONDS: Final = 1200.0
TEST_SECONDS: Final = 240  # a fault that makes a test hang is found too
_PASSED, _FAILED = 0, 1
_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)

# Runs of tests are forked from a process that has loaded what they all need, but nothing of ours.
_RUNS: Final = multiprocessing.get_context("forkserver")
_RUNS.set_forkserver_preload(
    ["pytest", "hypothesis", "aiohttp.web", "kopf", "kubernetes.aio.client", "pydantic", "grpc"]
)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: ``by`` is the first test that failed, empty where none did."""

    mutant: Mutant
    by: str
    seconds: float


class Stillborn(Exception):
    """A copy whose tests cannot even begin, which shows nothing."""


def occurrences(mutant: Mutant) -> int:
    """How often the piece that it replaces stands in the source; 1 where the catalog is right."""
    return (ROOT / SOURCES / mutant.path).read_text().count(mutant.old)


async def judge(mutant: Mutant, folder: Path) -> Verdict:
    """Tries a mutant in a copy of its own below ``folder``.

    Raises:
        Stillborn: the fault is no fault but a program that does not start.
    """
    copy = copy_of_the_tree(folder)
    source = copy / SOURCES / mutant.path
    source.write_text(source.read_text().replace(mutant.old, mutant.new))
    began, failed = time.monotonic(), ""
    for tests in (twin(mutant), CORE, ALL):
        failed = failed or await first_failure(copy, tests)
    return Verdict(mutant, failed, time.monotonic() - began)


def twin(mutant: Mutant) -> list[Path]:
    """The tests of the very module, or of its folder, which mostly find the fault."""
    module = Path(mutant.path)
    own = TESTS / module.parent / f"test_{module.name}"
    return [own] if (ROOT / own).exists() else [own.parent]


def copy_of_the_tree(folder: Path) -> Path:
    """The sources of the operator anew, everything else as links to this tree."""
    folder.mkdir(parents=True)
    for entry in ROOT.iterdir():
        if entry.name != SOURCES.parts[0] and not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / SOURCES.parts[0], folder / SOURCES.parts[0])
    return folder


async def first_failure(copy: Path, tests: Sequence[Path]) -> str:
    """Runs ``tests`` in ``copy`` until one fails; its name, empty when none does.

    Raises:
        Stillborn: none of them could begin.
    """
    output = copy / "output"
    process = _RUNS.Process(target=_run, args=(copy, output, [str(one) for one in tests]))
    process.start()
    try:
        await asyncio.to_thread(process.join, RUN_SECONDS)
    finally:
        process.kill()
    if process.exitcode == _PASSED:
        return ""
    told = output.read_text(errors="replace")
    found = _FAILURE.search(told)
    if process.exitcode != _FAILED or found is None:
        raise Stillborn("\n".join(told.splitlines()[-15:]))
    return found[1]


def _run(copy: Path, output: Path, tests: Sequence[str]) -> None:
    """In the forked process: runs the tests on the copy's sources."""
    os.chdir(copy)
    sys.path.insert(0, str(copy / SOURCES.parts[0]))
    options = ["-x", "-q", "-m", FAST, "-p", "no:cacheprovider", "-o", f"timeout={TEST_SECONDS}"]
    with output.open("w") as told, contextlib.redirect_stdout(told):
        code = pytest.main([*options, *tests])
    os._exit(code)  # threads that a fault has left behind end with it
