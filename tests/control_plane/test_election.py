"""Two replicas of the operator, of which one acts: whoever holds the Lease.

Each replica is a user of its own, so that the API server's audit log tells whose every write was.
"""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from cluster.audit import Entry
from cluster.control_plane import ControlPlane
from cluster.operator_process import OperatorProcess
from cluster.waiting import eventually
from control_plane.served import SECONDS, Served, namespace_of_its_own

LEASE_SECONDS: Final = 15.0
# After a silent end: two looks at the Lease, and a first list on a machine that others use too.
TAKES_OVER: Final = LEASE_SECONDS + 30.0


@dataclass(frozen=True)
class Replicas:
    """Two replicas; ``first`` leads."""

    control_plane: ControlPlane
    served: Served
    first: OperatorProcess
    second: OperatorProcess
    users: tuple[str, str]

    def writes(self, user: int, since: int) -> list[Entry]:
        """What a replica wrote after ``since``, but for the Lease."""
        entries = self.control_plane.audit.entries(since, user=self.users[user])
        return [one for one in entries if one.write.resource != "leases"]

    async def holder(self) -> str:
        """Who holds the Lease."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.served.namespace}/leases"
        found = await self.served.api.find(f"{path}/triptych-operator")
        return str(found["spec"]["holderIdentity"]) if found else ""

    async def second_acts(self, since: int, seconds: float) -> None:
        """Waits for a first write of the second replica."""
        try:
            await eventually(
                lambda: self.writes(1, since), "a write of the second replica", seconds=seconds
            )
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.second.tail()}") from error


@pytest.fixture
async def replicas(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Replicas]:
    """Two replicas with a resource that the first has made ready."""
    mark = uuid.uuid4().hex[:6]
    users = (f"operator-{mark}-a", f"operator-{mark}-b")
    async with AsyncExitStack() as running:
        api, namespace = await running.enter_async_context(namespace_of_its_own(control_plane))
        made = [
            OperatorProcess(
                control_plane.kubeconfig_for(user, groups=("system:masters",)),
                tmp_path / f"{user}.log",
                namespace,
                election=namespace,
            )
            for user in users
        ]
        first, second = made
        one = Replicas(control_plane, Served(api, namespace, first), first, second, users)
        await running.enter_async_context(first)
        await eventually(one.holder, "a leader", seconds=SECONDS)
        await running.enter_async_context(second)
        await one.served.apply()
        await one.served.until("Ready", "True")
        yield one


async def test_when_the_leader_is_killed_the_other_acts_within_the_leases_duration(
    replicas: Replicas,
) -> None:
    await replicas.first.kill()
    since, began = replicas.control_plane.audit.position(), time.monotonic()
    await replicas.served.apply(tiers__decode__replicas=2)
    await replicas.second_acts(since, TAKES_OVER)
    print(f"took over {time.monotonic() - began:.1f} s after SIGKILL")
    await replicas.served.until("Ready", "True")


async def test_one_acts_and_when_it_is_told_to_end_the_other_does_within_seconds(
    replicas: Replicas,
) -> None:
    assert replicas.writes(0, 0)
    assert replicas.writes(1, 0) == []
    since, leader = replicas.control_plane.audit.position(), await replicas.holder()
    await replicas.first.stop()
    began = time.monotonic()
    assert await replicas.holder() != leader, "it has given the Lease back"
    await replicas.served.apply(tiers__decode__replicas=2)
    await replicas.second_acts(since, LEASE_SECONDS)
    print(f"took over {time.monotonic() - began:.1f} s after SIGTERM")
    await replicas.served.until("Ready", "True")


async def test_a_leader_that_was_stopped_for_longer_than_its_lease_does_not_write_again(
    replicas: Replicas,
) -> None:
    """Its watches have a change to tell of when it goes on, before it knows that it has lost."""
    replicas.first.send(signal.SIGSTOP)
    since = replicas.control_plane.audit.position()
    await replicas.served.apply(tiers__decode__replicas=2)
    await replicas.second_acts(since, TAKES_OVER)
    await replicas.served.until("Ready", "True")
    taken = replicas.control_plane.audit.position()
    await replicas.served.apply(tiers__decode__replicas=3)
    await replicas.served.until("Ready", "True")
    replicas.first.send(signal.SIGCONT)
    await eventually(lambda: not replicas.first.running, "the end of the first", seconds=SECONDS)
    assert replicas.writes(0, taken) == []
    assert "another replica may lead now" in replicas.first.tail()
    await asyncio.sleep(1)
    assert replicas.second.running
