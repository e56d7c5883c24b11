"""Child processes: started in a session of their own, watched, measured, and always ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

STOP_SECONDS = 15.0


class DidNotStart(Exception):
    """A system ended, or did not serve in time. The message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program, what it needs in its environment, and where its output goes."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    log: Path


class Child:
    """A running program with all that it starts."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log
        self._family: dict[int, psutil.Process] = {}

    def cpu_seconds(self) -> float:
        """Processor time of the program and its descendants that are alive."""
        total = 0.0
        for member in self._alive():
            with contextlib.suppress(psutil.Error):
                times = member.cpu_times()
                total += times.user + times.system
        return total

    def remember(self) -> None:
        """Notes every descendant, so that none is left behind when a parent of it has gone."""
        self._alive()

    def pause(self) -> None:
        """Stops it and its descendants where they are."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets them go on."""
        self._signal(signal.SIGCONT)

    async def end(self) -> None:
        """SIGTERM, then SIGKILL for whatever is left."""
        self.resume()
        family = self._alive()
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), STOP_SECONDS)
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.kill()
        await self.process.wait()

    def tail(self, lines: int = 25) -> str:
        """The last lines of the log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(f"  | {line}" for line in text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        for member in self._alive():
            with contextlib.suppress(psutil.Error):
                member.send_signal(number)

    def _alive(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            for member in (root, *root.children(recursive=True)):
                self._family.setdefault(member.pid, member)
        return [member for member in self._family.values() if member.is_running()]


@contextlib.asynccontextmanager
async def running(command: Command) -> AsyncIterator[Child]:
    """Runs ``command`` inside the ``async with``; ends it and its descendants afterwards."""
    setpriv = shutil.which("setpriv")
    tied = (setpriv, "--pdeathsig", "TERM", "--") if setpriv else ()
    with command.log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *tied,
            *command.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **command.environment},
            start_new_session=True,
        )
    child = Child(process, command.log)
    try:
        yield child
    finally:
        await asyncio.shield(child.end())


async def until_serving(child: Child, url: str, seconds: float) -> None:
    """Polls ``url`` until it answers 200.

    Raises:
        DidNotStart: the program ended first, or ``seconds`` are over.
    """
    deadline = time.monotonic() + seconds
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        while time.monotonic() < deadline:
            child.remember()
            if child.process.returncode is not None:
                break
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.5)
    raise DidNotStart(f"nothing serves at {url}; the log {child.log} ends:\n{child.tail()}")


def stop_on_signals(task: asyncio.Task[None]) -> None:
    """SIGINT and SIGTERM cancel ``task``, so that every child is ended on the way out."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
