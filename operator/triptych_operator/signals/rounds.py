"""Rounds of questions to all pods, whose answers end up on the board."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter, Gauge, Histogram
from triptych_contract.errors import Unavailable
from triptych_contract.names import Tier

from triptych_operator.desired import naming
from triptych_operator.observed.snapshot import Pod, pod_of
from triptych_operator.observed.store import ServiceKey, Store
from triptych_operator.signals.board import SignalBoard
from triptych_operator.signals.history import History
from triptych_operator.signals.measures import PodTold, tier_signals
from triptych_operator.signals.page import PageError, read_page
from triptych_operator.signals.pages import Pages

PERIOD: Final = 5.0  # seconds from round to round
WINDOW: Final = 30.0  # seconds that rates and means look back
LASTING: Final = 15.0  # seconds that an answer stands for a pod which gives none
_TIERS: Final = frozenset(Tier)
_logger = logging.getLogger(__name__)

ROUND_SECONDS: Final = Histogram(
    "triptych_operator_signal_round_seconds",
    "Duration of one round of questions to all pods",
    buckets=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
PAGES: Final = Counter("triptych_operator_pages", "Pages asked of pods", ["outcome"])
SILENT: Final = Gauge("triptych_operator_silent_pods", "Ready pods that tell nothing")


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pod that a round asks."""

    service: ServiceKey
    tier: Tier
    pod: Pod

    @property
    def key(self) -> tuple[str, str]:
        return self.service.namespace, self.pod.name


async def read_signals(store: Store, board: SignalBoard) -> None:
    """Keeps ``board`` up to date with what the pods of ``store`` tell, for ever."""
    async with Pages() as pages:
        await Rounds(store, board, pages).run()


class Rounds:
    """Asks every pod once a period, and puts what each tier measured on the board."""

    def __init__(self, store: Store, board: SignalBoard, pages: Pages) -> None:
        self._store = store
        self._board = board
        self._pages = pages
        self._histories: dict[tuple[str, str], History] = {}

    async def run(self) -> None:
        """One round a period, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self.round()
            ROUND_SECONDS.observe(loop.time() - began)
            await asyncio.sleep(began + PERIOD - loop.time())

    async def round(self) -> None:
        """Asks all pods, for at most a period; who has not answered by then is silent."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PERIOD
        # Those that answered last time come first: many that hang would take all the time.
        asked = sorted(self._pods(), key=lambda one: self._last_at(one) is None)
        answers = [asyncio.create_task(self._ask(one)) for one in asked]
        if answers:
            await asyncio.wait(answers, timeout=until - loop.time())
        for answer in answers:
            answer.cancel()
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        for outcome in outcomes:
            PAGES.labels(outcome if isinstance(outcome, str) else "late").inc()
        self._publish(asked, loop.time())

    def _pods(self) -> list[_Asked]:
        """The pods that may have something to tell: not those that wait for a node, or are going,
        which no autoscaler counts."""
        found = []
        for service, child in self._store.of_kind("Pod"):
            body = child.body()
            tier = body["metadata"]["labels"].get(naming.COMPONENT, "")
            pod = pod_of(body)
            if pod.address and not pod.terminating and tier in _TIERS:
                found.append(_Asked(service, Tier(tier), pod))
        return found

    def _last_at(self, asked: _Asked) -> float | None:
        history = self._histories.get(asked.key)
        return history.last_at if history is not None else None

    async def _ask(self, asked: _Asked) -> str:
        """Asks one pod; how that went."""
        try:
            page = await self._pages.page(asked.pod.address)
            reading = read_page(page, asyncio.get_running_loop().time())
        except Unavailable as silent:
            _logger.debug("%s tells nothing: %s", asked.pod.name, silent.message)
            return "none"
        except PageError as garbage:
            _logger.debug("%s tells nothing of use: %s", asked.pod.name, garbage)
            return "garbage"
        self._histories.setdefault(asked.key, History(WINDOW)).add(reading)
        return "ok"

    def _publish(self, asked: Sequence[_Asked], now: float) -> None:
        self._histories = {
            one.key: self._histories[one.key] for one in asked if one.key in self._histories
        }
        for history in self._histories.values():
            history.forget_before(now)
        told: defaultdict[ServiceKey, defaultdict[Tier, list[PodTold]]]
        told = defaultdict(lambda: defaultdict(list))
        for one in asked:
            pod = PodTold(one.pod.name, one.pod.ready, self._answering(one, now))
            told[one.service][one.tier].append(pod)
        SILENT.set(
            sum(
                pod.ready and pod.history is None
                for tiers in told.values()
                for pods in tiers.values()
                for pod in pods
            )
        )
        for service in self._store.services():
            self._put(service, told[service], now)
        self._board.keep(self._store.services())

    def _answering(self, asked: _Asked, now: float) -> History | None:
        """What a pod told, unless that is too long ago."""
        last = self._last_at(asked)
        return self._histories[asked.key] if last is not None and now - last <= LASTING else None

    def _put(self, service: ServiceKey, told: Mapping[Tier, Sequence[PodTold]], now: float) -> None:
        gateways = told.get(Tier.GATEWAY, ())
        for tier in Tier:
            self._board.put(service, tier_signals(tier, told.get(tier, ()), gateways, now))
