"""One process of the operator, from its first connection to its last."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from triptych_contract.errors import Unavailable

from triptych_operator.cluster import connection
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.election import Claim, LeaseElection
from triptych_operator.cluster.kinds import SCALED_OBJECT, SERVICE_RESOURCE, observed
from triptych_operator.cluster.refusals import NOT_FOUND, Refusal
from triptych_operator.controller.audit import Audit
from triptych_operator.controller.custody import Custody
from triptych_operator.controller.definition import Definition
from triptych_operator.controller.edge import Edge
from triptych_operator.controller.health import serve
from triptych_operator.controller.queue import KeyedQueue
from triptych_operator.controller.reconcile import Reconciler, utc_now
from triptych_operator.controller.scaling import Scaler
from triptych_operator.controller.settings import Election, OperatorSettings, Pace
from triptych_operator.controller.workers import Task, work
from triptych_operator.desired.platform import Metrics, Platform
from triptych_operator.desired.wanted import WantedCache
from triptych_operator.observed.store import ServiceKey, Store
from triptych_operator.signals.board import SignalBoard
from triptych_operator.signals.rounds import LASTING, read_signals

if TYPE_CHECKING:
    from triptych_operator.metrics_api.provider import EmbeddedProvider

_logger = logging.getLogger(__name__)
_START_PAUSE: Final = 2.0  # seconds between attempts to list everything at the start
_DEAF_PERIODS: Final = 6  # audits that may fail before the process counts as broken


async def run(
    settings: OperatorSettings,
    stop: asyncio.Event,
    take_signals: Callable[[], None] = lambda: None,
) -> None:
    """Operates until ``stop`` is set; waits for its turn first where an election is asked for.

    Args:
        take_signals: called whenever something has taken over the process's signal handlers.

    Raises:
        InvalidRequest: there is no cluster to connect to.
        Unavailable: it lost the election, or the watches ended; start it again.
    """
    configuration = await connection.load(settings.kubeconfig)
    operation = _Operation(settings, take_signals)
    async with Api(configuration) as api, serve(settings.listen, operation.problem):
        if settings.election is None:
            await _until_first(stop, operation.run(api))
            return
        election = _election(api, settings.election)
        if not await _until_first(stop, election.acquire()):
            return
        try:
            async with Api(configuration, may_write=election.holds) as leading:
                await _until_first(stop, _lost(election), operation.run(leading))
        finally:
            await election.release()


class _Operation:
    """Watches, audit and workers over one store."""

    def __init__(self, settings: OperatorSettings, take_signals: Callable[[], None]) -> None:
        self._settings = settings
        self._take_signals = take_signals
        self._audit: Audit | None = None

    def problem(self) -> str:
        """What is wrong, or nothing."""
        if self._audit is None:
            return ""
        silent = asyncio.get_running_loop().time() - self._audit.finished_at
        limit = _DEAF_PERIODS * self._settings.pace.audit
        return f"nothing could be listed for {silent:.0f} s" if silent > limit else ""

    async def run(self, api: Api) -> None:
        settings, pace = self._settings, self._settings.pace
        store, board = Store(), SignalBoard(LASTING)
        due, flushes, scalings = _queue(pace), _queue(pace), _queue(pace)

        def changed(key: ServiceKey) -> None:
            due.add(key)
            if settings.flush_caches:
                flushes.add(key)

        kinds = observed(by_keda=settings.platform.metrics is Metrics.KEDA)

        all_changed = _for_each(store, changed)
        audit = Audit(api, store, settings.scopes, pace.audit, changed, kinds=kinds)
        await _fill(audit)
        self._audit = audit
        definition = Definition(api, store, changed)
        await definition.check()
        all_changed()
        provider = self._provider(api, board, all_changed)
        edge = Edge(store, changed=changed, listed=audit.soon, kinds=kinds)
        problem = provider.problem if provider is not None else str
        wanted = WantedCache(settings.platform)
        reconciler = Reconciler(api, store, wanted, changed, signals_problem=problem)
        custody = Custody(api, store, settings.platform.installation)
        reconcile = definition.guarded(custody.guarded(reconciler.reconcile))
        scaler = Scaler(api, store, board, settings.platform)
        scale = definition.guarded(custody.guarded(scaler.look))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(
                    edge.watch(settings.kubeconfig, settings.namespaces, self._take_signals)
                )
                group.create_task(audit.run())
                group.create_task(definition.run(pace.definition))
                if settings.read_signals:
                    group.create_task(read_signals(store, board))
                if provider is not None:
                    group.create_task(provider.run())
                for _ in range(pace.workers):
                    group.create_task(work(due, reconcile, pace.reconcile))
                group.create_task(scaler.run(scalings, pace.scaling))
                for _ in range(pace.scalings):
                    group.create_task(work(scalings, scale, pace.reconcile, "scaling"))
                if settings.flush_caches:
                    flusher = _flush(api, store, settings.platform, wanted)
                    flush = definition.guarded(custody.guarded(flusher))
                    for _ in range(pace.flushes):
                        group.create_task(work(flushes, flush, pace.reconcile, "flush"))
        except* Unavailable as ended:
            raise ended.exceptions[0] from None
        finally:
            due.close()
            flushes.close()
            scalings.close()

    def _provider(
        self, api: Api, board: SignalBoard, changed: Callable[[], None]
    ) -> EmbeddedProvider | None:
        front = self._settings.front
        if front is None:
            return None
        # Its cryptography takes 7 MiB.
        from triptych_operator.metrics_api.provider import EmbeddedProvider  # noqa: PLC0415

        return EmbeddedProvider(api, board, front, changed, utc_now)


def _flush(api: Api, store: Store, platform: Platform, wanted: WantedCache) -> Task:
    # Its gRPC takes 11 MiB.
    from triptych_operator.caches.calls import HolderCalls  # noqa: PLC0415
    from triptych_operator.controller.flush import Flusher  # noqa: PLC0415

    return Flusher(api, store, platform, wanted, HolderCalls()).flush


def _for_each(store: Store, changed: Callable[[ServiceKey], None]) -> Callable[[], None]:
    """Calls ``changed`` with every resource that there is then."""

    def all_changed() -> None:
        for key in store.services():
            changed(key)

    return all_changed


def _queue(pace: Pace) -> KeyedQueue[ServiceKey]:
    return KeyedQueue(first_retry=pace.first_retry, last_retry=pace.last_retry)


async def _fill(audit: Audit) -> None:
    while True:
        try:
            await audit.fill()
        except Refusal as refused:
            _logger.error("cannot begin: %s%s", refused.message, _advice(refused))  # noqa: TRY400 - the message says it all
            await asyncio.sleep(_START_PAUSE)
        else:
            return


def _advice(refused: Refusal) -> str:
    if refused.status == NOT_FOUND and SERVICE_RESOURCE.plural in refused.message:
        return "; install the resource definition: kubectl apply -f crds/"
    if refused.status == NOT_FOUND and SCALED_OBJECT.plural in refused.message:
        return "; install KEDA, or choose another way to metrics by --metrics"
    return ""


def _election(api: Api, election: Election) -> LeaseElection:
    claim = Claim(
        namespace=election.namespace,
        name=election.name,
        identity=f"{socket.gethostname()}_{os.getpid()}",
        duration=election.duration,
        renew=election.renew,
    )
    return LeaseElection(api, claim, utc_now)


async def _lost(election: LeaseElection) -> None:
    await election.hold()
    raise Unavailable("another replica may lead now: this one ends, to be started again")


async def _until_first(stop: asyncio.Event, *work: Awaitable[None]) -> bool:
    """Runs ``work`` until one of it ends or ``stop`` is set, then ends the rest; whether it ended
    by itself. Errors of it are raised."""
    stopping = asyncio.ensure_future(stop.wait())
    running = [asyncio.ensure_future(one) for one in work]
    try:
        done, _ = await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (stopping, *running):
            task.cancel()
        await asyncio.gather(stopping, *running, return_exceptions=True)
    for task in running:
        if task in done:
            task.result()
    return any(task in done for task in running)
