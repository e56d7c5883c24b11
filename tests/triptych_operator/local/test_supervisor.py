import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mms_builders import service
from triptych_contract.errors import DeadlineExceeded, Unavailable
from triptych_operator.api.service import MultimodalService
from triptych_operator.local.events import Event, Happening
from triptych_operator.local.plan import PlannedProcess, plan_locally
from triptych_operator.local.process import LocalProcess
from triptych_operator.local.ready import Ready, port_of
from triptych_operator.local.supervisor import Place, Supervisor

PROGRAM = Path(__file__).with_name("programs.py")
SERVICE = service(
    tiers__encoder={"replicas": 2},
    **{f"tiers__{tier}__drain": {"timeout": "60s"} for tier in ("encoder", "prefill", "decode")},
)
# One that ignores the end has no longer than this.
HURRIED = service(tiers__encoder={"replicas": 2}, tiers__decode__drain={"timeout": "1s"})


class Watched:
    """A supervisor over stand-in programs, and what it reported.

    The ports of a program that dies are kept until it is back: the kernel would give them to
    whoever asks for any.
    """

    def __init__(
        self,
        folder: Path,
        behaviour: dict[str, str],
        start_seconds: float,
        served: MultimodalService,
    ) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self._happened = asyncio.Event()
        self._behaviour = behaviour
        self._keepers: dict[int, socket.socket] = {}
        place = Place(folder, folder, port=0, start_seconds=start_seconds, grace_seconds=0.5)
        plan = plan_locally(served, cores=2)
        self.supervisor = Supervisor(served, plan, place, self._program, self._note)

    def _note(self, event: Event) -> None:
        self.events.append(event)
        self._happened.set()
        if event.happening is Happening.READY:
            self._keep_ports(event.process)

    def _keep_ports(self, process: str) -> None:
        lines = (self.folder / f"{process}.log").read_text().splitlines()
        *_, ready = filter(None, map(Ready.parse, lines))
        for port in map(port_of, (ready.grpc, ready.metrics, ready.http)):
            if port and port not in self._keepers:
                self._keepers[port] = keeper = socket.socket()
                keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                keeper.bind(("127.0.0.1", port))  # and does not listen, so that nobody gets in

    def close(self) -> None:
        for keeper in self._keepers.values():
            keeper.close()

    def _program(self, process: PlannedProcess, config: Path) -> list[str]:
        behaviour = self._behaviour.get(process.name, "serves")
        return [sys.executable, str(PROGRAM), behaviour, str(config)]

    def behave(self, process: str, behaviour: str) -> None:
        """From the next start on."""
        self._behaviour[process] = behaviour

    def config(self, process: str) -> dict[str, dict[str, object]]:
        loaded: dict[str, dict[str, object]] = json.loads(
            (self.folder / f"{process}.json").read_text()
        )
        return loaded

    def of(self, happening: Happening) -> list[Event]:
        return [event for event in self.events if event.happening is happening]

    async def until(self, happening: Happening, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.of(happening)) < count:
                self._happened.clear()
                await self._happened.wait()


@asynccontextmanager
async def watched(
    folder: Path,
    behaviour: dict[str, str] | None = None,
    start_seconds: float = 30,
    served: MultimodalService = SERVICE,
) -> AsyncIterator[Watched]:
    it = Watched(folder, behaviour or {}, start_seconds, served)
    try:
        yield it
    finally:
        await it.supervisor.kill()
        it.close()


async def test_the_gateway_starts_after_the_workers_and_knows_their_addresses(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path) as it:
        address = await it.supervisor.start()
        ready = [event.process for event in it.of(Happening.READY)]
        assert sorted(ready[:-1]) == ["decode-0", "encoder-0", "encoder-1", "prefill-0"]
        assert ready[-1] == "gateway-0"
        at = {event.process: event.detail for event in it.of(Happening.READY)}
        gateway = it.config("gateway-0")
        assert sorted(gateway["encoder"]["addresses"]) == sorted(  # type: ignore[call-overload]
            [at["encoder-0"], at["encoder-1"]]
        )
        assert gateway["decode"]["addresses"] == [at["decode-0"]]
        assert address == at["gateway-0"]


async def test_decode_gives_way_to_the_others_where_cores_are_short(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await it.supervisor.start()
        ours = os.nice(0)
        expected = {"decode-0": min(19, ours + 10), "prefill-0": ours, "encoder-0": ours}
        for name, niceness in expected.items():
            log = (tmp_path / f"{name}.log").read_text()
            assert f"niceness {niceness}\n" in log, name
        paces = {name: it.config(name).get("pace_seconds") for name in expected}
        assert paces == {"decode-0": 0.05, "prefill-0": None, "encoder-0": None}


async def test_draining_goes_from_the_gateway_to_the_encoders(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await it.supervisor.start()
        await it.supervisor.drain()
        stopped = [event.process for event in it.of(Happening.STOPPED)]
        assert stopped[:3] == ["gateway-0", "prefill-0", "decode-0"]
        assert sorted(stopped[3:]) == ["encoder-0", "encoder-1"]
        asked = _asked_to_end(tmp_path)
        assert asked["gateway-0"] < asked["prefill-0"] < asked["decode-0"] < asked["encoder-0"]


async def test_a_process_that_ends_at_the_start_ends_it_all_with_its_last_words(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, {"decode-0": "fails"}) as it:
        with pytest.raises(Unavailable) as caught:
            await it.supervisor.start()
        assert caught.value.message.splitlines() == [
            "decode-0 ended with exit status 1",
            "  | cannot load: the folder is empty",
        ]


async def test_a_process_that_never_gets_ready_is_named_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_the_deadline = LocalProcess.ready

    async def ready(process: LocalProcess, seconds: float) -> Ready:
        """The others get ready, however long a machine that others use takes for it."""
        return await by_the_deadline(process, seconds if process.name == "encoder-1" else 60.0)

    monkeypatch.setattr(LocalProcess, "ready", ready)
    async with watched(tmp_path, {"encoder-1": "silent"}, start_seconds=1) as it:
        with pytest.raises(DeadlineExceeded, match="encoder-1 is not ready after 1 s"):
            await it.supervisor.start()


async def test_a_program_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    supervisor = Supervisor(
        SERVICE,
        plan_locally(SERVICE, cores=2),
        Place(tmp_path, tmp_path / "absent"),
        lambda process, config: ["true"],
        lambda event: None,
    )
    with pytest.raises(Unavailable, match=r"cannot start .*absent"):
        await supervisor.start()
    await supervisor.drain()


async def test_a_process_that_dies_comes_back_at_its_old_address(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await it.supervisor.start()
        watching = asyncio.create_task(it.supervisor.watch())
        before = {event.process: event.detail for event in it.of(Happening.READY)}
        os.kill(_pid_of(it.folder / "encoder-0.json"), signal.SIGKILL)
        await it.until(Happening.READY, 6)
        [ended] = it.of(Happening.ENDED)
        assert (ended.process, ended.seconds) == ("encoder-0", 1.0)
        assert ended.detail.startswith("signal SIGKILL\n")
        again = it.of(Happening.READY)[-1]
        assert (again.process, again.detail) == ("encoder-0", before["encoder-0"])
        watching.cancel()


async def test_a_process_that_keeps_dying_waits_longer_each_time(tmp_path: Path) -> None:
    async with watched(tmp_path, {"prefill-0": "dies"}) as it:
        await it.supervisor.start()
        watching = asyncio.create_task(it.supervisor.watch())
        await it.until(Happening.ENDED, 2)
        assert [event.seconds for event in it.of(Happening.ENDED)] == [1.0, 2.0]
        watching.cancel()


async def test_a_process_that_fails_on_restart_is_tried_again(tmp_path: Path) -> None:
    async with watched(tmp_path, {"prefill-0": "dies"}) as it:
        await it.supervisor.start()
        it.behave("prefill-0", "fails")
        watching = asyncio.create_task(it.supervisor.watch())
        await it.until(Happening.ENDED, 2)
        it.behave("prefill-0", "serves")
        await it.until(Happening.READY, 6)
        assert "cannot load" in it.of(Happening.ENDED)[1].detail
        watching.cancel()


async def test_a_process_that_ignores_the_end_is_killed_after_its_drain_timeout(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, {"decode-0": "stubborn"}, served=HURRIED) as it:
        await it.supervisor.start()
        began = time.monotonic()
        await it.supervisor.drain()
        [killed] = it.of(Happening.KILLED)
        assert killed.process == "decode-0"
        assert 1.5 <= time.monotonic() - began < 30  # a second of drain and half of grace


def _asked_to_end(folder: Path) -> dict[str, float]:
    return {path.stem: float(path.read_text()) for path in folder.glob("*.trace")}


def _pid_of(config: Path) -> int:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            command = _command(entry)
            if command.endswith(f"{config}\0".encode()) and b"setpriv" not in command:
                return int(entry.name)
    raise AssertionError(f"no process runs with {config}")


def _command(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""  # it ended meanwhile
