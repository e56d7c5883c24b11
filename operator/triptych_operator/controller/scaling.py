"""One look at what a resource's pods measure, on one screen: rest or wake, departures, status.

The autoscalers' bounds are not among it: they follow from what stands, so the reconcile sets them.
What is remembered here is for how long it has been quiet, and when the status was last written;
both begin anew after a restart, and then nothing rests too early.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Tier

from triptych_operator.api.manifests import validate_service
from triptych_operator.api.service import KIND, Metadata
from triptych_operator.api.status import status_in
from triptych_operator.cluster.answers import Object
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.events import announce
from triptych_operator.cluster.kinds import DEPLOYMENT, POD
from triptych_operator.cluster.refusals import CONFLICT, NOT_FOUND, Refusal
from triptych_operator.cluster.statuses import write_status
from triptych_operator.controller.queue import KeyedQueue
from triptych_operator.controller.reconcile import Clock, microseconds, utc_now
from triptych_operator.desired import naming
from triptych_operator.desired.platform import Metrics, Platform
from triptych_operator.observed.snapshot import Snapshot, TierSnapshot, snapshot_of
from triptych_operator.observed.store import Child, ObjectKey, ServiceKey, Store
from triptych_operator.scaling.departures import changes
from triptych_operator.scaling.policy import Policy, policy_of
from triptych_operator.scaling.rest import Move, Quiet, demand, move
from triptych_operator.signals.board import SignalBoard, TierSignals
from triptych_operator.status.announcements import of_encoders
from triptych_operator.status.scaling import Said, dumped, is_news, said_of

_logger = logging.getLogger(__name__)
SCALING_MANAGER: Final = "triptych-scaling"
_Signals = Mapping[Tier, TierSignals]
SLICES: Final = 50  # of a period: those of a thousand resources take milliseconds each
STATUS_SECONDS: Final = 60.0  # between two writes of one status, unless another tier limits


def loop_time() -> float:
    """Seconds of the running event loop's clock."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class _Memory:
    """What is known of one resource from one look to the next."""

    uid: str
    settled_at: int | None = None  # the store's revision of it, if the last look left nothing to do
    generation: int = -1  # that ``policy`` was read from
    policy: Policy = field(default_factory=lambda: Policy(()))
    quiet: Quiet = field(default_factory=Quiet)
    told_at: float | None = None  # when its status was written, or would have been
    children: list[Child] = field(default_factory=list)  # that ``snapshot`` was read from
    snapshot: Snapshot = field(default_factory=Snapshot)

    def settle(self, revision: int) -> None:
        """Nothing is left to do of ``revision``. What stands is read again when there is."""
        self.settled_at = revision
        self.children, self.snapshot = [], Snapshot()


class Scaler:
    """Acts on the board, one resource at a time.

    Args:
        now: seconds, of the clock of the board.
        clock: the time of Events.
    """

    def __init__(
        self,
        api: Api,
        store: Store,
        board: SignalBoard,
        platform: Platform,
        *,
        now: Callable[[], float] = loop_time,
        clock: Clock = utc_now,
    ) -> None:
        self._api = api
        self._store = store
        self._board = board
        self._now = now
        self._clock = clock
        # KEDA takes its own autoscalers to zero and back.
        self._rests = platform.metrics is not Metrics.KEDA
        self._memories: dict[ServiceKey, _Memory] = {}

    async def run(self, due: KeyedQueue[ServiceKey], period: float) -> None:
        """Makes every resource that may need it due once a period, spread over all of it, for
        ever. No look is needed while no pod tells anything and nothing has changed."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            services = self._store.services()
            self._memories = {key: self._memories[key] for key in services if key in self._memories}
            for number in range(SLICES):
                for key in services[number::SLICES]:
                    if not self._is_settled(key):
                        due.add(key)
                await asyncio.sleep(began + period * (number + 1) / SLICES - loop.time())

    async def look(self, key: ServiceKey) -> None:
        """Looks at one resource and does what is due.

        Raises:
            Refusal: the API server refused something.
        """
        body = self._store.resource(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return
        memory = self._remembered(key, body)
        memory.settled_at, revision = None, self._store.revision(key)
        now = self._now()
        found = {one.tier: self._board.of(key, one.tier, now) for one in memory.policy.tiers}
        signals = {tier: one for tier, one in found.items() if one is not None}
        snapshot = self._observed(key, memory)
        if self._rests:
            await self._rest_or_wake(key, memory, snapshot, signals, now)
        for tier in memory.policy.tiers:
            if tier.acts and tier.tier in signals:
                await self._mark(key, signals[tier.tier], snapshot.tier(tier.tier))
        if await self._tell(key, body, memory, snapshot, signals) and not self._is_told(key):
            memory.settle(revision)

    def _is_settled(self, key: ServiceKey) -> bool:
        memory = self._memories.get(key)
        return (
            memory is not None
            and memory.settled_at == self._store.revision(key)
            and not self._is_told(key)
        )

    def _is_told(self, key: ServiceKey) -> bool:
        return self._board.is_told(key, self._now())

    def _remembered(self, key: ServiceKey, body: Object) -> _Memory:
        metadata = body["metadata"]
        known = self._memories.get(key)
        if known is None or known.uid != metadata["uid"]:
            known = self._memories[key] = _Memory(metadata["uid"])
        if known.generation != metadata["generation"]:
            known.generation, known.policy = metadata["generation"], _policy(body)
        return known

    def _observed(self, key: ServiceKey, memory: _Memory) -> Snapshot:
        """What stands, read anew only when it has changed, which it has at few looks."""
        children = self._store.children(key)
        if children != memory.children:
            memory.children, memory.snapshot = children, snapshot_of(children)
        return memory.snapshot

    async def _rest_or_wake(
        self, key: ServiceKey, memory: _Memory, snapshot: Snapshot, signals: _Signals, now: float
    ) -> None:
        policy, standing = memory.policy.of(Tier.ENCODER), snapshot.tier(Tier.ENCODER)
        if policy is None or not standing.present:
            return
        heard = signals.get(Tier.ENCODER)
        memory.quiet = memory.quiet.after(heard, now)
        since = memory.quiet.since
        due = move(
            policy,
            memory.policy.rest_after,
            desired=standing.desired,
            draining=any(pod.terminating for pod in standing.pods),
            quiet=now - since if since is not None else 0.0,
            wanted=heard is not None and demand(heard) is True,
        )
        if due is Move.NONE:
            return
        pods = policy.min if due is Move.WAKE else 0
        if await self._set_pods(key, Tier.ENCODER, pods):
            told = of_encoders(due, pods, memory.policy.rest_after)
            about = Metadata(name=key.name, namespace=key.namespace, uid=memory.uid)
            await announce(self._api, about, told, microseconds(self._clock()))

    async def _set_pods(self, key: ServiceKey, tier: Tier, pods: int) -> bool:
        """Sets a number of pods between two of the autoscaler's, under a name of its own: it has to
        stay the autoscaler's to change. Whether there was something to set it of."""
        child = self._child(key, DEPLOYMENT.name, naming.child_of(key.name, tier))
        if child is None:
            return False
        metadata = {"namespace": key.namespace, "name": child.key.name, "uid": child.uid}
        manifest = {
            "apiVersion": DEPLOYMENT.api_version,
            "kind": DEPLOYMENT.name,
            "metadata": metadata | {"resourceVersion": str(child.version)},
            "spec": {"replicas": pods},
        }
        answer = await self._api.apply(DEPLOYMENT, manifest, manager=SCALING_MANAGER)
        self._store.put(DEPLOYMENT.name, answer)
        _logger.info("%s/%s: %d pods", key.namespace, child.key.name, pods)
        return True

    async def _mark(self, key: ServiceKey, signals: TierSignals, standing: TierSnapshot) -> None:
        """Has the pods with least in hand be the first to go."""
        staying = {pod.name: pod.cost for pod in standing.pods if not pod.terminating}
        costs = changes(signals.work, staying)
        await asyncio.gather(*(self._price(key, pod, cost) for pod, cost in costs.items()))

    async def _price(self, key: ServiceKey, pod: str, cost: int) -> None:
        child = self._child(key, POD.name, pod)
        if child is None:
            return
        metadata = {"namespace": key.namespace, "name": pod, "uid": child.uid}
        manifest = {
            "apiVersion": POD.api_version,
            "kind": POD.name,
            "metadata": metadata | {"annotations": {naming.DELETION_COST: str(cost)}},
        }
        try:
            # By the way of the status, which the operator may write anyhow: the right to change
            # pods would be one to change their images.
            answer = await self._api.apply(
                POD, manifest, subresource="status", manager=SCALING_MANAGER
            )
        except Refusal as refused:
            if refused.status not in (NOT_FOUND, CONFLICT):
                raise
            return  # gone meanwhile
        self._store.put(POD.name, answer)

    async def _tell(
        self, key: ServiceKey, body: Object, memory: _Memory, snapshot: Snapshot, signals: _Signals
    ) -> bool:
        """Writes what is said of signals and caches, if it is news, and tells whether it was none.
        What is said already stands for a while after a start, when nothing has been measured
        yet."""
        now, old = self._now(), Said.by(status_in(body))
        if memory.told_at is None:
            memory.told_at = now if old != Said() else float("-inf")
        new = said_of(memory.policy, signals, snapshot, old)
        early = now - memory.told_at < STATUS_SECONDS
        urgent = bool(signals) and new.limiting_tier != old.limiting_tier
        if not is_news(new, old):
            return True
        if early and not urgent:
            return False
        version = self._store.version(key)
        answer = await write_status(self._api, body, version, dumped(new), manager=SCALING_MANAGER)
        memory.told_at = now
        if answer is not None:
            self._store.put(KIND, answer)
        return False

    def _child(self, key: ServiceKey, kind: str, name: str) -> Child | None:
        return self._store.child(key, ObjectKey(kind, key.namespace, name))


def _policy(body: Object) -> Policy:
    metadata = body["metadata"]
    try:
        return policy_of(validate_service(body, f"{metadata['namespace']}/{metadata['name']}"))
    except InvalidRequest:
        return Policy(())  # that it cannot be read is for the reconcile to say
