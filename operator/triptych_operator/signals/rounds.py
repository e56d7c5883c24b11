"""Rounds of questions to all pods, whose answers end up on the board."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from prometheus_client import Counter, Gauge, Histogram
from triptych_contract.errors import Unavailable
from triptych_contract.names import Tier

from triptych_operator.observed.store import ServiceKey, Store
from triptych_operator.signals.board import SignalBoard, TierSignals
from triptych_operator.signals.measures import PodTold, tier_signals
from triptych_operator.signals.memory import STANDING, Asked, Memory, pods_to_ask
from triptych_operator.signals.page import PageError, read_page
from triptych_operator.signals.pages import Pages

PERIOD: Final = 5.0  # seconds from round to round
LASTING: Final = STANDING * PERIOD  # seconds that what a round found may be acted on
# All pods at once would hold up everything else for as long as all the questions take.
_SPREAD: Final = 0.1  # of a period, in which all are asked: time is left for each to answer
_MOST_BETWEEN: Final = 0.005  # seconds between two questions; few pods need no more
_IN_ONE_PIECE: Final = 16  # pods that are read at a time
_logger = logging.getLogger(__name__)

ROUND_SECONDS: Final = Histogram(
    "triptych_operator_signal_round_seconds",
    "Duration of one round of questions to all pods",
    buckets=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
PAGES: Final = Counter("triptych_operator_pages", "Pages asked of pods", ["outcome"])
SILENT: Final = Gauge("triptych_operator_silent_pods", "Ready pods that tell nothing")


async def read_signals(store: Store, board: SignalBoard) -> None:
    """Keeps ``board`` up to date with what the pods of ``store`` tell, for ever."""
    async with Pages() as pages:
        await Rounds(store, board, pages).run()


class Rounds:
    """Asks every pod once a ``period`` (seconds), and puts what each tier measured on the board."""

    def __init__(
        self, store: Store, board: SignalBoard, pages: Pages, period: float = PERIOD
    ) -> None:
        self._period = period
        self._store = store
        self._board = board
        self._pages = pages
        self._memory = Memory()

    async def run(self) -> None:
        """One round a period, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self.round()
            ROUND_SECONDS.observe(loop.time() - began)
            await asyncio.sleep(began + self._period - loop.time())

    async def round(self) -> None:
        """Asks all pods, for at most a period; who has not answered by then is silent."""
        # Those that answered last come first: many that hang would take all the time.
        asked = sorted(await self._pods(), key=self._memory.last_at, reverse=True)
        between = min(_MOST_BETWEEN, _SPREAD * self._period / max(1, len(asked)))
        answers = [
            asyncio.create_task(self._ask(one, after=place * between))
            for place, one in enumerate(asked)
        ]
        if answers:
            _, late = await asyncio.wait(answers, timeout=self._period)
            for answer in late:
                answer.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for answer in answers:
            PAGES.labels("late" if answer.cancelled() else answer.result()).inc()
        await self._publish(asked, asyncio.get_running_loop().time())

    async def _pods(self) -> list[Asked]:
        found = []
        for one in pods_to_ask(self._store):
            found.append(one)
            if len(found) % _IN_ONE_PIECE == 0:
                await asyncio.sleep(0)
        return found

    async def _ask(self, asked: Asked, after: float) -> str:
        """Asks one pod in ``after`` seconds; how that went."""
        await asyncio.sleep(after)
        try:
            page = await self._pages.page(asked.pod.address)
            reading = read_page(page, asyncio.get_running_loop().time())
        except Unavailable as silent:
            _logger.debug("%s tells nothing: %s", asked.pod.name, silent.message)
            return "none"
        except PageError as garbage:
            _logger.debug("%s tells nothing of use: %s", asked.pod.name, garbage)
            return "garbage"
        self._memory.add(asked, reading)
        return "ok"

    async def _publish(self, asked: Sequence[Asked], now: float) -> None:
        by_service: defaultdict[ServiceKey, defaultdict[Tier, list[PodTold]]]
        by_service = defaultdict(lambda: defaultdict(list))
        silent = 0
        for one, told in zip(asked, self._memory.end_round(asked, now), strict=True):
            by_service[one.service][one.tier].append(told)
            silent += told.ready and told.history is None
        SILENT.set(silent)
        nothing = [TierSignals(tier, now) for tier in Tier]  # the same of all that have no pods
        for service in self._store.services():
            if service in by_service:
                await self._put(service, by_service[service], now)
            else:
                for signals in nothing:
                    self._board.put(service, signals)
        self._board.keep(set(self._store.services()))

    async def _put(
        self, service: ServiceKey, told: Mapping[Tier, Sequence[PodTold]], now: float
    ) -> None:
        gateways = told.get(Tier.GATEWAY, ())
        for tier in Tier:
            self._board.put(service, tier_signals(tier, told.get(tier, ()), gateways, now))
        await asyncio.sleep(0)  # all resources in one piece would hold up everything else
