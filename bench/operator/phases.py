"""What is done to the operators: resources made and changed at a steady rate and in bursts, a rest.

Steady calls go to the operators in rotation and bursts to one after the other, so that all of them
see the same machine and none works while another's burst is timed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.operator import shape
from bench.operator.calls import CallLog
from bench.operator.history import History
from bench.operator.systems import System, Use

if TYPE_CHECKING:
    from cluster.api import Api

POLL_SECONDS: Final = 0.25
CALM_LIMIT: Final = 600.0
IN_FLIGHT: Final = 8  # creations of a burst at a time
WARM: Final = "warm"


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of a run, the same for each operator."""

    resources: int  # present at the end, apart from one to warm up
    steady: int  # of them, made one by one
    bursts: int  # in which the others are made
    pods: bool  # those of the bursts have pods too, which takes the machine minutes more
    changes: int
    pause: float  # seconds from one steady call to the next, whichever operator it is for
    calm: float  # seconds without a write after which an operator has nothing left to do
    idle: float  # seconds without a change at the end
    limit: float  # seconds that a phase may take

    def steady_names(self) -> list[str]:
        """Those that are made one by one."""
        return [f"steady-{number:04}" for number in range(self.steady)]

    def burst_names(self, burst: int) -> list[str]:
        """Those of one burst."""
        numbers = range(self.steady + burst, self.resources, self.bursts)
        return [f"burst-{number:04}" for number in numbers]

    def changed_names(self) -> list[str]:
        """Those that are changed: made one by one first, then of the bursts."""
        rest = (name for burst in range(self.bursts) for name in self.burst_names(burst))
        return [*self.steady_names(), *rest][: self.changes]


@dataclass(frozen=True, slots=True)
class Stretch:
    """One phase: when it was, and what each operator used."""

    began: float  # seconds since 1970
    ended: float
    used: dict[str, Use]


@dataclass(slots=True)
class Field:
    """The operators, what is known of them, and the ways to act on their resources."""

    api: Api
    log: CallLog
    systems: Sequence[System]
    histories: dict[str, History]
    stop_controllers: Callable[[], None]  # those of Kubernetes, which make pods
    say: Callable[[str], None]
    stretches: dict[str, Stretch] = field(default_factory=dict)

    def read(self) -> None:
        """Takes in the calls since the last time."""
        for call in self.log.read():
            for history in self.histories.values():
                history.take(call)

    async def until(self, what: str, holds: Callable[[], bool], limit: float) -> None:
        """Waits for a condition over the histories.

        Raises:
            TimeoutError: it did not come to hold in ``limit`` seconds.
        """
        deadline = time.monotonic() + limit
        while True:
            self.read()
            if holds():
                return
            if time.monotonic() > deadline:
                states = ", ".join(
                    f"{name}: {one.incomplete()} incomplete, {one.unpatched()} unpatched"
                    for name, one in self.histories.items()
                )
                raise TimeoutError(f"{what}: not in {limit:.0f} s ({states})")
            await asyncio.sleep(POLL_SECONDS)

    async def calm(self, seconds: float) -> None:
        """Waits until no operator has written for so long."""

        def all_calm() -> bool:
            last = max(history.last_write() for history in self.histories.values())
            return time.time() - last > seconds

        await self.until("operators at rest", all_calm, CALM_LIMIT)

    @asynccontextmanager
    async def stretch(self, name: str) -> AsyncIterator[None]:
        """Measures what the operators use inside."""
        before = {system.name: await system.use() for system in self.systems}
        began = time.time()
        yield
        ended = time.time()
        used = {one.name: (await one.use()).since(before[one.name]) for one in self.systems}
        self.stretches[name] = Stretch(began, ended, used)

    async def create(self, namespace: str, name: str) -> None:
        """Makes one resource."""
        await self.api.create(shape.COLLECTION.format(namespace), shape.manifest(name))

    async def change(self, namespace: str, name: str) -> None:
        """Changes the field of one resource."""
        path = f"{shape.COLLECTION.format(namespace)}/{name}"
        await self.api.merge(path, shape.change(shape.VALUES[1]))


async def all_phases(ground: Field, plan: Plan) -> None:
    """Everything, in order."""
    await warm_up(ground, plan)
    async with ground.stretch("create"):
        await create_steadily(ground, plan)
        if not plan.pods:
            ground.stop_controllers()
        await create_bursts(ground, plan)
    async with ground.stretch("change"):
        await change_steadily(ground, plan)
    ground.say(f"idle for {plan.idle:.0f} s")
    async with ground.stretch("idle"):
        await asyncio.sleep(plan.idle)
    ground.read()


async def warm_up(ground: Field, plan: Plan) -> None:
    """One resource each, so that everybody has connected and imported what there is."""
    ground.say("one resource each, to warm up")
    await asyncio.gather(*(ground.create(namespace, WARM) for namespace in ground.histories))
    await _all_made(ground, ground.histories, 1, plan)
    await ground.calm(plan.calm)


async def create_steadily(ground: Field, plan: Plan) -> None:
    """Resource after resource, the operators in rotation."""
    ground.say(f"{plan.steady} resources each, one by one")
    await _rotate(ground, plan.steady_names(), ground.create, plan.pause)
    await _all_made(ground, ground.histories, 1 + plan.steady, plan)
    await ground.calm(plan.calm)


async def create_bursts(ground: Field, plan: Plan) -> None:
    """Many at once for one operator after the other; each burst begins with another operator."""
    made = 1 + plan.steady
    for burst in range(plan.bursts):
        names = plan.burst_names(burst)
        made += len(names)
        order = list(ground.histories)
        for namespace in order if burst % 2 == 0 else reversed(order):
            began = time.monotonic()
            await _all_at_once(ground, namespace, names)
            await _all_made(ground, [namespace], made, plan)
            took = time.monotonic() - began
            ground.say(f"{namespace}: a burst of {len(names)} in {took:.1f} s")
            await ground.calm(plan.calm)


async def change_steadily(ground: Field, plan: Plan) -> None:
    """A field of one resource after the other, the operators in rotation."""
    ground.say(f"{plan.changes} changes each, one by one")
    await _rotate(ground, plan.changed_names(), ground.change, plan.pause)
    histories = ground.histories.values()
    await ground.until(
        "all Deployments patched",
        lambda: all(one.changed() == plan.changes and not one.unpatched() for one in histories),
        plan.limit,
    )
    await ground.calm(plan.calm)


async def _rotate(
    ground: Field,
    names: Iterable[str],
    act: Callable[[str, str], Coroutine[None, None, None]],
    pause: float,
) -> None:
    loop = asyncio.get_running_loop()
    due = loop.time()
    async with asyncio.TaskGroup() as group:
        for name in names:
            for namespace in ground.histories:
                group.create_task(act(namespace, name))
                due += pause
                await asyncio.sleep(max(0.0, due - loop.time()))
                ground.read()


async def _all_at_once(ground: Field, namespace: str, names: Sequence[str]) -> None:
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def one(name: str) -> None:
        async with slots:
            await ground.create(namespace, name)

    await asyncio.gather(*(one(name) for name in names))


async def _all_made(ground: Field, namespaces: Iterable[str], count: int, plan: Plan) -> None:
    chosen = [ground.histories[namespace] for namespace in namespaces]
    await ground.until(
        f"{count} resources with all children",
        lambda: all(len(one.resources) == count and not one.incomplete() for one in chosen),
        plan.limit,
    )
