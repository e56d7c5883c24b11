"""Runs programs: to their end, or until they are stopped."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

STOP_SECONDS = 10.0
POLL_SECONDS = 0.1

Argument = str | Path


class CommandError(Exception):
    """A command failed; the message is what it said."""


def run(*command: Argument, seconds: float = 60.0) -> str:
    """Runs a command to its end and gives what it printed.

    Raises:
        CommandError: it failed or took longer than ``seconds``.
    """
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{_line(command)}: not done after {seconds:.0f} s") from error
    if done.returncode:
        raise CommandError(f"{_line(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def start(command: Sequence[Argument], log: Path) -> subprocess.Popen[bytes]:
    """Starts a program whose output goes to the end of ``log``."""
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a program: by SIGTERM, then by force after some seconds."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Returns once ``condition`` holds.

    Raises:
        TimeoutError: it does not after ``seconds``; the message says ``what``.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {seconds:.0f} s")
        time.sleep(POLL_SECONDS)


def _line(command: Sequence[Argument]) -> str:
    return " ".join(str(part) for part in command)
