"""Who acts, by a Lease on a server that is slow, busy, or gone. Durations are a second or so, of a
clock that goes on only while this process may run: it is both the server and all who ask it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from api_server import ApiServer, Call, refusing, slow, status
from triptych_operator.cluster import connection
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.election import Claim, LeaseElection
from triptych_operator.cluster.kinds import LEASE

DURATION, RENEW = 1.2, 0.1
PATIENCE = 20.0  # seconds; a busy machine is no fault
LATE = 0.02  # seconds by which a loop that may run is never late

Elections = Callable[..., LeaseElection]


class Clock:
    """Makes the time of the running loop stand still while the machine does."""

    def __init__(self, loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lost, self._back = 0.0, time.monotonic()
        self._select, self._time = loop._selector.select, loop.time
        monkeypatch.setattr(loop._selector, "select", self._waits)
        monkeypatch.setattr(loop, "time", lambda: self._time() - self._lost)

    def put_forward(self, seconds: float) -> None:
        self._lost -= seconds

    def _waits(self, seconds: float | None = None) -> Any:
        began = time.monotonic()
        self._leave_out(began - self._back)
        ready = self._select(seconds)
        self._back = time.monotonic()
        if seconds is not None:  # else nothing is timed
            self._leave_out(self._back - began - seconds)
        return ready

    def _leave_out(self, late: float) -> None:
        self._lost += max(0.0, late - LATE)


@pytest.fixture(autouse=True)
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(asyncio.get_running_loop(), monkeypatch)


@pytest.fixture
async def election(server: ApiServer, tmp_path: Path) -> AsyncIterator[Elections]:
    async with Api(await connection.load(server.kubeconfig(tmp_path))) as api:

        def of(identity: str, renew: float = RENEW) -> LeaseElection:
            claim = Claim("n", "operator", identity, DURATION, renew)
            return LeaseElection(api, claim, lambda: datetime.now(UTC))

        yield of


def lease(server: ApiServer) -> dict[str, Any]:
    found = server.get(LEASE, "n", "operator")
    assert found is not None
    spec: dict[str, Any] = found["spec"]
    return spec


def held_by(server: ApiServer, holder: str, renewed: str = "2026-01-01T00:00:00.000000Z") -> None:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseTransitions": 3}
    server.put(LEASE, {"metadata": {"namespace": "n", "name": "operator"}, "spec": spec})


async def seconds(work: Awaitable[object]) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(PATIENCE):
        await work
    return loop.time() - began


async def test_a_lease_that_nobody_has_is_taken_at_once(
    server: ApiServer, election: Elections
) -> None:
    one = election("a", PATIENCE)  # one try, which takes no longer than it may
    assert not one.holds()
    await one.acquire()
    assert one.holds()
    spec = lease(server)
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("a", 1)
    assert spec["acquireTime"] == spec["renewTime"]


async def test_a_lease_that_was_given_back_is_taken_at_once(
    server: ApiServer, election: Elections
) -> None:
    first, second = election("a"), election("b")
    await first.acquire()
    await first.release()
    assert (lease(server)["holderIdentity"], first.holds()) == ("", False)
    await second.acquire()
    assert (lease(server)["holderIdentity"], second.holds()) == ("b", True)
    assert lease(server)["leaseTransitions"] == 3


async def test_only_the_holder_gives_a_lease_back(server: ApiServer, election: Elections) -> None:
    held_by(server, "somebody")
    await election("b").release()
    assert lease(server)["holderIdentity"] == "somebody"


async def test_nothing_fails_when_the_lease_cannot_be_given_back(
    server: ApiServer, election: Elections
) -> None:
    one = election("a")
    await one.acquire()
    server.faults.append(refusing("PUT", lambda: status(500, "InternalError", "no")))
    await one.release()
    assert lease(server)["holderIdentity"] == "a"


@pytest.mark.parametrize("renewed", ["1999-01-01T00:00:00.0Z", "2099-01-01T00:00:00.0Z", ""])
async def test_a_silent_holder_loses_it_by_the_clock_of_whoever_looks(
    server: ApiServer, election: Elections, renewed: str
) -> None:
    held_by(server, "gone", renewed)
    assert await seconds(election("b").acquire()) >= DURATION
    assert (lease(server)["holderIdentity"], lease(server)["leaseTransitions"]) == ("b", 4)


async def test_a_lease_of_longer_duration_lasts_so_long(
    server: ApiServer, election: Elections
) -> None:
    spec = {"holderIdentity": "gone", "renewTime": "x", "leaseDurationSeconds": 2}
    server.put(LEASE, {"metadata": {"namespace": "n", "name": "operator"}, "spec": spec})
    assert await seconds(election("b").acquire()) >= 2


async def test_a_holder_that_started_again_need_not_wait(
    server: ApiServer, election: Elections
) -> None:
    held_by(server, "a")
    assert await seconds(election("a").acquire()) < DURATION


async def test_a_holder_that_renews_keeps_it(server: ApiServer, election: Elections) -> None:
    first, second = election("a"), election("b")
    await first.acquire()
    holding, waiting = asyncio.create_task(first.hold()), asyncio.create_task(second.acquire())
    await asyncio.sleep(2.5 * DURATION)
    assert (first.holds(), second.holds(), holding.done(), waiting.done()) == (
        True, False, False, False
    )  # fmt: skip
    holding.cancel()
    assert await seconds(waiting) >= 0
    assert (first.holds(), second.holds()) == (False, True)


FAULTS = {
    "does not answer": lambda: slow("", 60.0),
    "does not answer writes": lambda: slow("PUT", 60.0),
    "refuses": lambda: refusing("", lambda: status(500, "InternalError", "no")),
    "answers HTML": lambda: refusing("", lambda: web.Response(text="<html>")),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_holder_stops_in_time_when_the_server(
    server: ApiServer, election: Elections, fault: Callable[[], Any]
) -> None:
    one = election("a")
    await one.acquire()
    server.faults.append(fault())
    held = await seconds(one.hold())
    assert not one.holds()
    assert held < DURATION, "another may have taken it by then"


async def test_a_holder_bears_what_passes(server: ApiServer, election: Elections) -> None:
    one = election("a")
    await one.acquire()
    server.faults.append(refusing("", lambda: status(503, "ServiceUnavailable", "no"), times=3))
    holding = asyncio.create_task(one.hold())
    await asyncio.sleep(1.5 * DURATION)
    assert (holding.done(), one.holds()) == (False, True)
    holding.cancel()


async def test_a_holder_stops_at_once_when_somebody_else_was_given_it(
    server: ApiServer, election: Elections
) -> None:
    one = election("a")
    await one.acquire()
    held_by(server, "b", "2026-02-02T00:00:00Z")
    assert await seconds(one.hold()) < DURATION * 2 / 3
    assert not one.holds()


async def test_a_holder_that_was_stopped_for_long_does_not_hold_when_it_goes_on(
    election: Elections, clock: Clock
) -> None:
    one = election("a")
    await one.acquire()
    clock.put_forward(DURATION)
    assert not one.holds()


async def test_of_two_that_want_a_free_lease_one_gets_it(
    server: ApiServer, election: Elections
) -> None:
    many = [election(str(number)) for number in range(5)]
    waiting = [asyncio.create_task(one.acquire()) for one in many]
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert sum(one.holds() for one in many) == 1
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("seed", range(3))
async def test_never_do_two_hold_it_at_once(
    server: ApiServer, election: Elections, seed: int
) -> None:
    """Three replicas that hold, lose and acquire again, through a server that fails at random."""
    chance, turns = random.Random(seed), 0
    server.faults.append(_troubled(chance))
    replicas = [election(str(number)) for number in range(3)]

    async def live(one: LeaseElection) -> None:
        nonlocal turns
        while True:
            await one.acquire()
            turns += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(0.2, 1.0)):
                    await one.hold()
            if chance.random() < 0.5:
                await one.release()
            await asyncio.sleep(chance.uniform(0, 0.3))

    alive = [asyncio.create_task(live(one)) for one in replicas]
    loop = asyncio.get_running_loop()
    until = loop.time() + 6
    try:
        while loop.time() < until:
            assert sum(one.holds() for one in replicas) <= 1
            await asyncio.sleep(0.005)
        assert not any(task.done() for task in alive)
    finally:
        for task in alive:
            task.cancel()
        await asyncio.gather(*alive, return_exceptions=True)
    assert turns >= 2


def _troubled(chance: random.Random) -> Callable[[Call], Awaitable[web.StreamResponse | None]]:
    async def fault(_: Call) -> web.StreamResponse | None:
        await asyncio.sleep(chance.choice((0, 0, 0.02, 0.15)))
        return status(500, "InternalError", "no") if chance.random() < 0.2 else None

    return fault
