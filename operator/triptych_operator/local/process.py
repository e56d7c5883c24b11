"""One child process: start it, read its ready line, keep its log, signal it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from triptych_contract.errors import DeadlineExceeded, Unavailable

from triptych_operator.local.ready import Ready

LINE_LIMIT: Final = 256 * 1024  # bytes of one line on stdout; longer ones are dropped
TAIL_BYTES: Final = 64 * 1024  # read from the end of a log to find its last lines


class LocalProcess:
    """A child in a process group of its own, so that Ctrl-C in the terminal reaches us alone.

    Its stderr, and what it prints on stdout, goes to ``log``. A child outlives none of our own
    sudden deaths where the machine has util-linux's ``setpriv``. ``niceness`` is added to ours.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        niceness: int = 0,
    ) -> None:
        self.name = name
        self.log = log
        self._argv = (*_tied_to_parent(), *_nicer(niceness), *argv)
        self._environment = {**os.environ, **environment}
        self._child: asyncio.subprocess.Process | None = None
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._follower: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether it has started and not ended."""
        return self._child is not None and self._child.returncode is None

    async def start(self) -> None:
        """Starts the child.

        Raises:
            Unavailable: the program or its log file cannot be opened.
        """
        try:
            # Appending writes of a line or two; the file is on the local disk.
            output = self.log.open("ab", buffering=0)
            self._child = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                env=self._environment,
                # A group, not a session: Linux shares cores out among sessions, and a stage of
                # one small thread would get as much as all others of this service together.
                process_group=0,
                limit=LINE_LIMIT,
            )
        except OSError as error:
            raise Unavailable(f"cannot start {self.name}: {error}") from error
        self._follower = asyncio.create_task(self._follow(self._child, output))

    async def ready(self, seconds: float) -> Ready:
        """Waits until it serves.

        Raises:
            Unavailable: it ended first; the message has the last lines of its log.
            DeadlineExceeded: it still starts after ``seconds``.
        """
        ended = asyncio.ensure_future(self.wait())
        try:
            await asyncio.wait(
                (self._ready, ended), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if self._ready.done():
                return self._ready.result()
            tail = await asyncio.to_thread(self.log_tail)
            if ended.done():
                raise Unavailable(f"{self.name} ended with {describe(ended.result())}\n{tail}")
            raise DeadlineExceeded(f"{self.name} is not ready after {seconds:.0f} s\n{tail}")
        finally:
            ended.cancel()

    async def wait(self) -> int:
        """Waits for the end; the exit status, negative for a signal."""
        if self._child is None:
            return 0
        return await self._child.wait()

    async def stop(self, seconds: float) -> bool:
        """Asks it to end (SIGTERM), and kills it after ``seconds``; whether it ended by itself."""
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(), seconds)
            by_itself = True
        except TimeoutError:
            by_itself = False
        await self.kill()
        return by_itself

    async def kill(self) -> None:
        """Ends it and whatever it has started, now."""
        self._signal_group(signal.SIGKILL)
        await self.wait()
        if self._follower is not None:
            await self._follower

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of its log, indented."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError as error:
            return f"  (no log: {error.strerror})"
        return "\n".join(f"  | {line}" for line in text.splitlines()[-lines:]) or "  (empty log)"

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)

    def _signal_group(self, number: signal.Signals) -> None:
        """Signals the whole group: also what the child has left behind when it is gone."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)

    async def _follow(self, child: asyncio.subprocess.Process, output: IO[bytes]) -> None:
        """Copies stdout to the log until its end, and picks out the ready line."""
        stdout = child.stdout
        with output:
            while stdout is not None:
                try:
                    line = await stdout.readline()
                except ValueError:
                    continue  # longer than LINE_LIMIT; the reader has dropped it
                if not line:
                    return
                output.write(line)
                self._notice(line)

    def _notice(self, line: bytes) -> None:
        if not self._ready.done():
            found = Ready.parse(line.decode(errors="replace"))
            if found is not None:
                self._ready.set_result(found)


def describe(status: int) -> str:
    """An exit status in words."""
    if status < 0:
        return f"signal {signal.Signals(-status).name}"
    return f"exit status {status}"


def _tied_to_parent() -> tuple[str, ...]:
    """A prefix that has Linux end the child when we die without a chance to do it."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "TERM", "--") if setpriv else ()


def _nicer(niceness: int) -> tuple[str, ...]:
    """A prefix that has the scheduler prefer other processes when cores are short."""
    return ("nice", "-n", str(niceness)) if niceness else ()
