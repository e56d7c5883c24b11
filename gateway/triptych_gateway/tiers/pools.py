"""The pods as they are now: asked every few seconds, and at once when one has failed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Self

from triptych_contract.config import Endpoints, Revisions
from triptych_contract.errors import TriptychError, Unavailable
from triptych_contract.fingerprints import EncoderIdentity, encoder_fingerprint
from triptych_contract.names import Tier, Topology
from triptych_contract.v1.common_pb2 import STATE_SERVING
from triptych_contract.v1.worker_pb2 import DescribeResponse

from triptych_gateway.tiers.addresses import addresses_of
from triptych_gateway.tiers.calls import PodCalls, PodLost
from triptych_gateway.tiers.fleet import Expected, Pod, Route, plan_route

_LOG: Final = logging.getLogger(__name__)
_REFRESH_SECONDS: Final = 2.0
_UNKNOWN_SECONDS: Final = 0.3  # between asks of a pod that is not up
_ASK_SECONDS: Final = 2.0
# A pod that is busy may miss one ask. One that misses these gets nothing new; what runs on it may
# end well, as long as its connection answers.
_MISSED_UNTIL_DOWN: Final = 2


@dataclass(slots=True)
class _Watch:
    """One address under watch."""

    tier: Tier
    address: str
    pod: Pod | None = None
    missed: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)  # once at least
    task: asyncio.Task[None] | None = None


class Pools:
    """Knows the pods of every tier, and how much of this gateway's work each has.

    Use as ``async with``, whose beginning asks every pod once: what serves then is known before the
    first request. Reading never waits.
    """

    def __init__(
        self,
        calls: PodCalls,
        endpoints: Mapping[Tier, Endpoints],
        topology: Topology,
        expected: Expected,
    ) -> None:
        self._calls = calls
        self._endpoints = endpoints
        self._topology = topology
        self._expected = expected
        self._watches: dict[tuple[Tier, str], _Watch] = {}
        self._work: Counter[str] = Counter()
        self._gone: set[str] = set()  # addresses of pods that DNS names no more
        self._route = Route()
        self._changed = asyncio.Event()
        self._discovery: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._discover()
        self._discovery = asyncio.create_task(self._keep_discovering())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ASK_SECONDS):
                await asyncio.gather(*(watch.asked.wait() for watch in self._watches.values()))
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [watch.task for watch in self._watches.values() if watch.task is not None]
        if self._discovery is not None:
            tasks.append(self._discovery)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def route(self) -> Route:
        """The pods that serve together now."""
        return self._route

    @property
    def work(self) -> Mapping[str, int]:
        """Requests of this gateway that each address is working on."""
        return self._work

    @contextmanager
    def working(self, address: str) -> Iterator[None]:
        """Counts one request on ``address`` inside the ``with``."""
        self._work[address] += 1
        try:
            yield
        finally:
            self._work[address] -= 1
            if self._work[address] <= 0:
                del self._work[address]

    def failed(self, address: str, error: TriptychError) -> None:
        """A call to ``address`` failed. A pod that went away gets nothing until it has answered
        again; one that says it is unavailable is asked at once why: it may drain."""
        if not isinstance(error, Unavailable):
            return
        for watch in self._watches.values():
            if watch.address == address:
                if isinstance(error, PodLost):
                    watch.pod = None
                    watch.missed = max(watch.missed, 1)
                watch.wake.set()
        self._replan()

    async def changed(self, seconds: float) -> None:
        """Waits until the route has changed, at most ``seconds``."""
        event = self._changed
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return

    async def _keep_discovering(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            await self._discover()

    async def _discover(self) -> None:
        for tier, endpoints in self._endpoints.items():
            addresses = await addresses_of(endpoints)
            if addresses is None:
                continue
            for address in addresses:
                if (tier, address) not in self._watches:
                    self._watch(tier, address)
            for watch in list(self._watches.values()):
                if watch.tier is tier and watch.address not in addresses:
                    self._unwatch(watch)
        for address in [one for one in self._gone if one not in self._work]:
            self._gone.discard(address)
            await self._calls.forget(address)
        self._replan()

    def _watch(self, tier: Tier, address: str) -> None:
        self._gone.discard(address)
        watch = _Watch(tier, address)
        watch.task = asyncio.create_task(self._keep_asking(watch))
        self._watches[tier, address] = watch

    def _unwatch(self, watch: _Watch) -> None:
        """The pod is gone from DNS; its channel goes once the calls that it still serves ended."""
        del self._watches[watch.tier, watch.address]
        self._gone.add(watch.address)
        if watch.task is not None:
            watch.task.cancel()
            # The task's last frame knows the watch: in a circle its connection would stay open.
            watch.task = None

    async def _keep_asking(self, watch: _Watch) -> None:
        while True:
            watch.wake.clear()
            await self._ask(watch)
            pause = _REFRESH_SECONDS if watch.pod is not None else _UNKNOWN_SECONDS
            try:
                async with asyncio.timeout(pause):
                    await watch.wake.wait()
            except TimeoutError:
                continue

    async def _ask(self, watch: _Watch) -> None:
        try:
            answer = await self._calls.describe(watch.address, _ASK_SECONDS)
        except TriptychError as error:
            self._missed(watch, error)
        else:
            watch.missed = 0
            watch.pod = pod_of(watch.tier, watch.address, answer)
        self._replan()
        watch.asked.set()

    def _missed(self, watch: _Watch, error: TriptychError) -> None:
        watch.missed += 1
        if watch.missed == _MISSED_UNTIL_DOWN:
            _LOG.warning("%s %s is down: %s", watch.tier, watch.address, error.message)
            watch.pod = None

    def _replan(self) -> None:
        pods = [watch.pod for watch in self._watches.values() if watch.pod is not None]
        route = plan_route(pods, self._topology, self._expected)
        if route != self._route:
            self._route = route
            self._changed.set()
            self._changed = asyncio.Event()


def pod_of(tier: Tier, address: str, answer: DescribeResponse) -> Pod | None:
    """The pod behind an answer; None if it takes no work or contradicts itself."""
    if answer.state != STATE_SERVING:
        return None
    try:
        identity = EncoderIdentity.parse(answer.encoder_identity) if answer.fingerprint else None
    except ValueError:
        return None
    if identity is not None and encoder_fingerprint(identity) != answer.fingerprint:
        return None
    return Pod(
        tier=tier,
        address=address,
        instance=answer.instance,
        identity=identity,
        fingerprint=answer.fingerprint,
        model_digest=answer.model_digest,
        kv_layout=answer.kv_layout,
        can_encode=answer.can_encode,
        context_tokens=answer.capacity.context_tokens,
        kv_tokens=answer.capacity.kv_tokens,
        busy=answer.load.running + answer.load.waiting,
        revisions=Revisions(language=answer.language_revision, encoder=answer.encoder_revision),
    )
