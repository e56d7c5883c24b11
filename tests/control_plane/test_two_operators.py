"""Two installations that look after one namespace: each has its own Lease, and so both act."""

from __future__ import annotations

import asyncio
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

IMAGE: Final = "registry.example/triptych-worker:another"  # of the second's own settings
NOT_FOUGHT_OVER: Final = frozenset({"leases", "events"})


@dataclass(frozen=True)
class Installations:
    """Two operators with different settings; ``second`` came later. Each is a user of its own."""

    control_plane: ControlPlane
    served: Served
    second: OperatorProcess
    first_user: str
    namespaces: tuple[str, str]  # of their Leases

    def writes_of_first(self, since: int) -> list[Entry]:
        """What the first wrote after ``since``, but for its Lease and Events."""
        entries = self.control_plane.audit.entries(since, user=self.first_user)
        return [one for one in entries if one.write.resource not in NOT_FOUGHT_OVER]

    async def first_rests(self) -> bool:
        """Whether the first writes nothing; it may tell of the other amid what it had begun."""
        since = self.control_plane.audit.position()
        await asyncio.sleep(1)
        return self.writes_of_first(since) == []

    async def images(self) -> set[str]:
        """What the Deployments run."""
        found = await self.served.api.items(self.served.path("Deployment"))
        return {
            container["image"]
            for one in found
            for container in one["spec"]["template"]["spec"]["containers"]
        }


@pytest.fixture
async def installations(
    control_plane: ControlPlane, tmp_path: Path
) -> AsyncIterator[Installations]:
    """A resource that the first has made ready, and then the second as well."""
    mark = uuid.uuid4().hex[:6]
    users = (f"installation-{mark}-a", f"installation-{mark}-b")
    async with AsyncExitStack() as running:
        api, namespace = await running.enter_async_context(namespace_of_its_own(control_plane))
        _, other = await running.enter_async_context(namespace_of_its_own(control_plane))
        first, second = (
            OperatorProcess(
                control_plane.kubeconfig_for(user, groups=("system:masters",)),
                tmp_path / f"{user}.log",
                namespace,
                election=election,
                arguments=arguments,
            )
            for user, election, arguments in zip(
                users, (namespace, other), ((), (f"--image={IMAGE}",)), strict=True
            )
        )
        await running.enter_async_context(first)
        made = Installations(
            control_plane, Served(api, namespace, first), second, users[0], (namespace, other)
        )
        await made.served.apply()
        await made.served.until("Ready", "True")
        await running.enter_async_context(second)
        yield made


async def test_the_one_that_came_later_acts_alone_and_the_other_says_so(
    installations: Installations,
) -> None:
    served, (namespace, other) = installations.served, installations.namespaces

    async def said() -> bool:
        return ("Warning", "AnotherOperator") in await served.events()

    await eventually(said, "an Event about the second operator", seconds=SECONDS)
    assert f"the operator in namespace {other} has taken it over" in served.operator.tail()
    assert f"takes over {namespace}/shapes" in installations.second.tail()
    await eventually(installations.first_rests, "the end of what it was about", seconds=SECONDS)
    since = installations.control_plane.audit.position()
    await served.apply(tiers__decode__replicas=3)
    await served.until("Ready", "True")
    assert await installations.images() == {IMAGE}
    assert installations.writes_of_first(since) == []
    assert (await served.events()).count(("Warning", "AnotherOperator")) == 1
