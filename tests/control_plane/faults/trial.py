"""One resource in a namespace of its own, under an operator that faults are done to."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.api import Api, Object
from cluster.children import PODS, Children, children, difference
from cluster.operator_process import OperatorProcess
from cluster.waiting import eventually
from control_plane.faults.proxy import FaultProxy
from control_plane.faults.transitions import Manifest, Transition, goal, path

SETTLE_SECONDS: Final = 60.0  # without faults; on a machine that others use too


@dataclass(frozen=True)
class Trial:
    """The parts of one trial. ``api`` goes past the proxy."""

    api: Api
    namespace: str
    proxy: FaultProxy
    operator: OperatorProcess

    async def apply(self, manifest: Manifest) -> None:
        """Applies the resource as a user does."""
        await self.api.apply(path(self.namespace), manifest, manager="user")

    async def act(self, transition: Transition) -> None:
        """Does what the transition is, from where it starts."""
        aim = goal(transition)
        if transition in (Transition.DELETE, Transition.RECREATE, Transition.REPLACE):
            await self.api.delete(path(self.namespace))
        if aim.after is not None:
            await self.apply(aim.after)

    async def begin(self, transition: Transition) -> None:
        """Brings about what the transition starts from."""
        before = goal(transition).before
        if before is not None:
            await self.apply(before)
            await self.settle()

    async def clear(self) -> None:
        """Deletes the resource, if there is one, and waits until nothing of it is left."""
        if await self.api.find(path(self.namespace)) is not None:
            await self.api.delete(path(self.namespace))
        await self.converged(Transition.DELETE, {}, SETTLE_SECONDS)

    async def settle(self) -> None:
        """Waits until all is done and ready, as it should be without faults."""
        try:
            await eventually(self.settled, "a ready resource", seconds=SETTLE_SECONDS)
        except TimeoutError as error:
            found = await self.api.find(path(self.namespace))
            status = found and found.get("status")
            raise TimeoutError(f"{error}\n{status}\n{self.operator.tail()}") from error

    async def settled(self) -> bool:
        """Whether the status says that all is done and ready."""
        found = await self.api.find(path(self.namespace))
        return found is not None and _is_done(found)

    async def amiss(self, transition: Transition, wanted: Children) -> list[str]:
        """What is not as it is to be after ``transition``, in words."""
        lines = difference(await children(self.api, self.namespace), wanted)
        if goal(transition).after is None:
            pods = await self.api.items(PODS.format(self.namespace))
            return lines + [f"pod {pod['metadata']['name']} is left over" for pod in pods]
        return lines if await self.settled() else [*lines, "the status does not say it is done"]

    async def converged(self, transition: Transition, wanted: Children, seconds: float) -> None:
        """Waits until nothing is amiss after ``transition``.

        Raises:
            TimeoutError: something still is; says what.
        """
        await self._until_none(lambda: self.amiss(transition, wanted), seconds)

    async def healed(self, wanted: Children, seconds: float) -> None:
        """Waits until the children are ``wanted`` again, and ready.

        Raises:
            TimeoutError: they are not; says how they differ.
        """
        await self._until_none(lambda: self.amiss(Transition.UPDATE, wanted), seconds)

    async def _until_none(self, amiss: Callable[[], Awaitable[list[str]]], seconds: float) -> None:
        lines: list[str] = []

        async def look() -> bool:
            nonlocal lines
            lines = await amiss()
            return not lines

        try:
            await eventually(look, "convergence", seconds=seconds)
        except TimeoutError as error:
            told = "\n".join(lines[:20])
            raise TimeoutError(f"{error}\n{told}\n{self.operator.tail()}") from error


@asynccontextmanager
async def trial(kubeconfig: Path, folder: Path) -> AsyncIterator[Trial]:
    """A trial that runs while inside; its files are in ``folder``."""
    namespace = f"trial-{uuid.uuid4().hex[:10]}"
    own = folder / namespace
    own.mkdir()
    async with (
        Api(kubeconfig) as api,
        FaultProxy(kubeconfig, own) as proxy,
        OperatorProcess(proxy.kubeconfig, own / "operator.log", namespace) as operator,
    ):
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await api.create("/api/v1/namespaces", made)
        yield Trial(api, namespace, proxy, operator)
        await api.delete(f"/api/v1/namespaces/{namespace}")


@dataclass(frozen=True)
class Undisturbed:
    """What a transition does when nothing goes wrong."""

    writes: tuple[str, ...]  # in the order in which they were made
    wanted: Children  # what a fresh creation of the last state gives, in the trial's namespace
    seconds: float  # how long it took, on a machine as busy as this one is


async def undisturbed(one: Trial, transition: Transition) -> Undisturbed:
    """Does a fresh creation of what ``transition`` leads to, and then itself without faults."""
    manifest, wanted = goal(transition).after, Children()
    if manifest is not None:
        await one.apply(manifest)
        await one.settle()
        wanted = await children(one.api, one.namespace)
        await one.clear()
    await one.begin(transition)
    begun, started = len(one.proxy.writes), time.monotonic()
    await one.act(transition)
    await one.converged(transition, wanted, SETTLE_SECONDS)
    seconds = time.monotonic() - started
    writes = tuple(call.text for call in one.proxy.writes[begun:])
    await one.clear()
    return Undisturbed(writes, wanted, seconds)


def _is_done(resource: Object) -> bool:
    status = resource.get("status", {})
    conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
    current = status.get("observedGeneration") == resource["metadata"]["generation"]
    return current and conditions.get("Ready") == "True"
