"""The operators under test as processes: one namespace and one user of the API server each."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import psutil
from cluster.ports import free_port
from prometheus_client.parser import text_string_to_metric_families

from bench.operator import shape
from bench.processes import Child, Command, DidNotStart, running, until_serving

if TYPE_CHECKING:
    from cluster.control_plane import ControlPlane

SYSTEMS: Final = ("ours", "go-1", "go-16")
LABELS: Final = {"ours": "Triptych", "go-1": "Go, 1 worker", "go-16": "Go, 16 workers"}
START_SECONDS: Final = 60.0
LOOPBACK: Final = "127.0.0.1"
BUILD: Final = Path(__file__).parent / "build"
_RECONCILES: Final = {
    "ours": "triptych_operator_reconcile_seconds_count",
    "go": "controller_runtime_reconcile_total",
}
_OURS: Final = (
    sys.executable, "-m", "triptych_operator", "operator",
    "--namespace=ours", "--no-election", "--no-cache-flush", f"--image={shape.IMAGE}",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Use:
    """What a process has used up to a moment."""

    at: float  # seconds since 1970
    cpu_seconds: float
    reconciles: float
    memory: int  # bytes, resident

    def since(self, earlier: Use) -> Use:
        """What was used since ``earlier``; memory as it is now."""
        return Use(
            self.at,
            self.cpu_seconds - earlier.cpu_seconds,
            self.reconciles - earlier.reconciles,
            self.memory,
        )


class System:
    """A running operator."""

    def __init__(self, name: str, child: Child, port: int) -> None:
        self.name = name
        self._child = child
        self._metrics = f"http://{LOOPBACK}:{port}/metrics"

    async def use(self) -> Use:
        """What it has used up to now.

        Raises:
            DidNotStart: it has ended.
        """
        if self._child.process.returncode is not None:
            raise DidNotStart(f"{self.name} has ended; its log ends:\n{self._child.tail()}")
        memory = psutil.Process(self._child.process.pid).memory_info().rss
        reconciles = await self._reconciles()
        return Use(time.time(), self._child.cpu_seconds(), reconciles, memory)

    async def until_serving(self) -> None:
        """Waits until it serves its metrics."""
        await until_serving(self._child, self._metrics, START_SECONDS)

    async def _reconciles(self) -> float:
        wanted = _RECONCILES[self.name.partition("-")[0]]
        async with aiohttp.ClientSession() as session, session.get(self._metrics) as answer:
            text = await answer.text()
        samples = (one for family in text_string_to_metric_families(text) for one in family.samples)
        return sum(sample.value for sample in samples if sample.name == wanted)


def user(system: str) -> str:
    """The API server's name for an operator."""
    return f"bench:{system}"


@asynccontextmanager
async def operating(
    plane: ControlPlane, systems: Sequence[str], folder: Path, *, signals: bool
) -> AsyncIterator[list[System]]:
    """Runs the operators, each in its own namespace. ``signals``: ours asks the pods for theirs,
    which no pod of kwok's answers."""
    peers = await _peers(systems, folder)
    async with AsyncExitStack() as stack:
        found = []
        for name in systems:
            port = free_port()
            kubeconfig = plane.kubeconfig_for(user(name), groups=("system:masters",))
            if name in peers:
                argv = [*peers[name], f"-kube={kubeconfig}", f"-listen={LOOPBACK}:{port}"]
            else:
                argv = [*_OURS, *(() if signals else ("--no-signals",))]
                argv.append(f"--listen={LOOPBACK}:{port}")
            command = Command(argv, {"KUBECONFIG": str(kubeconfig)}, folder / f"{name}.log")
            found.append(System(name, await stack.enter_async_context(running(command)), port))
        for system in found:
            await system.until_serving()
        yield found


async def _peers(systems: Sequence[str], folder: Path) -> dict[str, list[str]]:
    """The command of each operator in Go; the program is only built if there is any."""
    names = [name for name in systems if name.startswith("go-")]
    if not names:
        return {}
    process = await asyncio.create_subprocess_exec(BUILD, stdout=asyncio.subprocess.PIPE)
    answer, _ = await process.communicate()
    if process.returncode:
        raise DidNotStart(f"{BUILD} failed; its messages are above")
    templates = folder / "templates.json"
    templates.write_text(json.dumps(shape.templates()))
    common = [answer.decode().strip(), f"-templates={templates}"]
    return {
        name: [*common, f"-namespace={name}", f"-workers={name.partition('-')[2]}"]
        for name in names
    }
