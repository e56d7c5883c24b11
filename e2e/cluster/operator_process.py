"""The operator as a process of its own, so that tests can kill it at any moment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Final, Self

import aiohttp
from cluster.ports import free_port
from cluster.waiting import eventually

IMAGE: Final = "registry.example/triptych-worker:test"
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0


class OperatorProcess:
    """``triptych operator`` for some namespaces. Ends, if need be by force, with the ``with``.

    It acts at once, unless a Lease in the namespace ``election`` says which of several does.
    It asks pods for their metrics where ``asks_pods``: where they are no more than played, in vain.
    """

    def __init__(
        self,
        kubeconfig: Path,
        log: Path,
        *namespaces: str,
        arguments: tuple[str, ...] = (),
        election: str = "",
        asks_pods: bool = False,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._log = log
        self._namespaces = namespaces
        self._arguments = arguments
        self._election = election
        self._asks_pods = asks_pods
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Starts it, and waits until it serves ``/healthz``.

        Raises:
            TimeoutError: it did not.
            RuntimeError: it ended; the message has the end of its log.
        """
        self._port = free_port()
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdout=log,
                stderr=log,
                env={**os.environ, "KUBECONFIG": str(self._kubeconfig)},
                start_new_session=True,
            )
        async with aiohttp.ClientSession() as session:
            await eventually(
                lambda: self._answers(session), "the operator's /healthz", seconds=START_SECONDS
            )

    async def kill(self) -> None:
        """Ends it at once, as a lost node would; nothing when it has ended already."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ends it by SIGTERM, and by force when it does not comply."""
        await self._end(signal.SIGTERM)

    def send(self, one: signal.Signals) -> None:
        """Sends it a signal, and waits for nothing."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(one)

    def tail(self, lines: int = 30) -> str:
        """The end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    async def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.send_signal(with_signal)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _answers(self, session: aiohttp.ClientSession) -> bool:
        if not self.running:
            raise RuntimeError(f"the operator ended; its log ends:\n{self.tail()}")
        try:
            async with session.get(f"http://127.0.0.1:{self._port}/healthz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "triptych_operator", "operator"]
        alone = not self._election
        command += ["--no-election" if alone else f"--election-namespace={self._election}"]
        command += ["--no-cache-flush"]  # no stage answers where kwok plays the pods
        command += [] if self._asks_pods else ["--no-signals"]
        command += [f"--image={IMAGE}", f"--listen=127.0.0.1:{self._port}", *self._arguments]
        return command + [f"--namespace={name}" for name in self._namespaces]
