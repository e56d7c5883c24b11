"""The faults of watches and answers that an operator must outlive, each with its beginning and end.

A fault has ended when the network and the server are as they should be: what was lost meanwhile
stays lost, and a connection that had gone silent has been cut.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from control_plane.faults import answers, watches
from control_plane.faults.proxy import FaultProxy

_EXPIRED: Final = watches.error(watches.GONE, "Expired")

Step = Callable[[FaultProxy], Awaitable[None]]


async def _heal(proxy: FaultProxy) -> None:
    proxy.heal()


async def _relist(proxy: FaultProxy) -> None:
    proxy.heal()
    await proxy.interrupt(_EXPIRED)


async def _cut(proxy: FaultProxy) -> None:
    proxy.heal()
    await proxy.interrupt()


async def _lift(proxy: FaultProxy) -> None:
    hole = proxy.answers
    proxy.heal()
    await proxy.interrupt()
    if isinstance(hole, answers.BlackHole):
        hole.lift()


async def _old_lists(proxy: FaultProxy) -> None:
    proxy.answers = answers.OldLists(proxy.lists)
    await proxy.interrupt(_EXPIRED)


async def _silence(proxy: FaultProxy) -> None:
    proxy.watches = watches.Silent()


async def _black_hole(proxy: FaultProxy) -> None:
    proxy.answers, proxy.watches = answers.BlackHole(), watches.Silent()


def _watching(fault: Callable[[], watches.Watches]) -> Step:
    async def begin(proxy: FaultProxy) -> None:
        proxy.watches = fault()

    return begin


def _answering(fault: Callable[[], answers.Answers]) -> Step:
    async def begin(proxy: FaultProxy) -> None:
        proxy.answers = fault()

    return begin


@dataclass(frozen=True)
class Fault:
    """One fault. ``fatal`` where the operator may end by itself, to be started again."""

    begin: Step
    end: Step = _heal
    fatal: bool = False


FAULTS: Final = {
    "events dropped until relist": Fault(_watching(watches.Drop), _relist),
    "events of pods alone dropped": Fault(_watching(lambda: watches.Drop("pods")), _relist),
    "events delayed": Fault(_watching(lambda: watches.Delay(1.0))),
    "events duplicated": Fault(_watching(watches.Duplicate)),
    "kinds reordered": Fault(_watching(lambda: watches.ReorderKinds(1.5, seed=1))),
    "old versions after new ones": Fault(_watching(watches.OldVersions)),
    "an old list served": Fault(_old_lists),
    "410 in mid-stream": Fault(_watching(lambda: watches.Fail(410, "Expired"))),
    "500 in mid-stream": Fault(_watching(lambda: watches.Fail(500, "InternalError")), fatal=True),
    "streams end": Fault(_watching(watches.End)),
    "silent streams": Fault(_silence, _cut),
    "429 with Retry-After": Fault(
        _answering(lambda: answers.Refuse(429, "TooManyRequests", retry_after=1))
    ),
    "500 answers": Fault(_answering(lambda: answers.Refuse(500, "InternalError"))),
    "slow answers": Fault(_answering(lambda: answers.Slow(1.0))),
    "black hole": Fault(_black_hole, _lift),
}
