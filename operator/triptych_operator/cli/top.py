"""``triptych top NAME``: what a service's pods do now, against what they are scaled on."""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from triptych_contract.names import Port, Tier

from triptych_operator.cli.resource import Resource, add_resource_arguments, opened
from triptych_operator.cli.top_view import TopView, rendered, view_of
from triptych_operator.desired import naming
from triptych_operator.observed.snapshot import pod_of
from triptych_operator.observed.store import ServiceKey
from triptych_operator.scaling.policy import policy_of
from triptych_operator.signals.measures import PodTold
from triptych_operator.signals.memory import Asked, Memory
from triptych_operator.signals.page import PageError, read_page

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "top",
        help="what the pods of a service do now, and which tier holds up the others",
        description="Shows every tier with its pods, the signals that it scales on beside their "
        "targets, the wait in its queue and the hit rates of its caches, until Ctrl-C. Reads the "
        "pods' metrics through the API server (needs the right to get pods/proxy).",
    )
    add_resource_arguments(command)
    command.add_argument("--once", action="store_true", help="print one table and end")
    command.add_argument(
        "--interval", type=float, default=2.0, help="seconds between looks (default: %(default)s)"
    )
    command.set_defaults(run=run_top)


def run_top(options: argparse.Namespace) -> int:
    """Shows the table; 0."""
    console = Console()
    try:
        asyncio.run(_show(options, console))
    except KeyboardInterrupt:
        return 0  # the way to end it
    return 0


async def _show(options: argparse.Namespace, console: Console) -> None:
    async with opened(options) as resource:
        views = looks(resource, options.interval)
        await anext(views)  # rates are known from the second look on
        if options.once or not console.is_terminal:
            console.print(rendered(await anext(views)))
            return
        with Live(console=console, auto_refresh=False, screen=True) as live:
            async for view in views:
                live.update(rendered(view), refresh=True)


async def looks(resource: Resource, interval: float) -> AsyncIterator[TopView]:
    """What there is to show, again and again."""
    memory = Memory()
    limiting: Tier | None = None
    loop = asyncio.get_running_loop()
    while True:
        service, found = await resource.service(), await resource.read()
        asked = _asked(resource.key, await resource.pods())
        await asyncio.gather(*(_ask(resource, memory, one) for one in asked))
        told: defaultdict[Tier, list[PodTold]] = defaultdict(list)
        for one, pod in zip(asked, memory.end_round(asked, loop.time()), strict=True):
            told[one.tier].append(pod)
        desired = {tier.name: tier.desired for tier in found.status.tiers}
        title = f"{found.namespace}/{found.name}   {found.topology}"
        view = view_of(title, policy_of(service), told, desired, limiting)
        limiting = view.limiting
        yield view
        await asyncio.sleep(interval)


def _asked(service: ServiceKey, bodies: Sequence[Mapping[str, Any]]) -> list[Asked]:
    pods = [(body["metadata"]["labels"].get(naming.COMPONENT, ""), pod_of(body)) for body in bodies]
    return [
        Asked(service, Tier(tier), pod)
        for tier, pod in pods
        if pod.address and not pod.terminating and tier in set(Tier)
    ]


async def _ask(resource: Resource, memory: Memory, asked: Asked) -> None:
    page = await resource.page_if_any(asked.pod.name, Port.METRICS, "metrics")
    if page is None:
        return
    try:
        memory.add(asked, read_page(page.encode(), asyncio.get_running_loop().time()))
    except PageError:
        return  # counts as silent
