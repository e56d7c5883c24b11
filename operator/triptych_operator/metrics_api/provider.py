"""The embedded provider as one task of the replica that leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from triptych_contract.errors import TriptychError

from triptych_operator.cluster.api import Api
from triptych_operator.cluster.kinds import CONFIG_MAP
from triptych_operator.metrics_api import front_proxy
from triptych_operator.metrics_api.certificates import Authority, Serving
from triptych_operator.metrics_api.front import Front
from triptych_operator.metrics_api.front_proxy import FrontProxy, front_proxy_of
from triptych_operator.metrics_api.registration import Registration
from triptych_operator.metrics_api.server import MetricsServer
from triptych_operator.signals.board import SignalBoard

PERIOD: Final = 10.0  # seconds between two looks at what the API server says of us
_logger = logging.getLogger(__name__)


class EmbeddedProvider:
    """Serves what is on ``board`` to autoscalers for as long as it runs.

    Args:
        changed: called when ``problem`` has become another.
        clock: the present, with its time zone.
    """

    def __init__(
        self,
        api: Api,
        board: SignalBoard,
        front: Front,
        changed: Callable[[], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._board = board
        self._front = front
        self._changed = changed
        self._clock = clock
        self._authority = Authority(clock())
        self._registration = Registration(api, front, self._authority.certificate)
        self._secured: tuple[Serving, FrontProxy] | None = None
        self._failure = ""

    def problem(self) -> str:
        """Why autoscalers do not get at the signals, or nothing."""
        return self._failure or self._registration.problem

    async def run(self) -> None:
        """Serves, and keeps the API server's way here open, for ever.

        Raises:
            Unavailable: another process listens at the address.
        """
        address = (self._front.address, self._front.port)
        async with MetricsServer(self._board, *address, self._clock) as server:
            while True:
                await self.look(server)
                await asyncio.sleep(PERIOD)

    async def look(self, server: MetricsServer) -> None:
        """Sees to it that the right ones are let in, and find their way."""
        before = self.problem()
        try:
            await self._secure(server)
            await self._registration.check()
        except TriptychError as error:
            if error.message != self._failure:
                _logger.warning("the metrics API is not in order: %s", error.message)
            self._failure = error.message
        else:
            self._failure = ""
        if self.problem() != before:
            self._changed()

    async def _secure(self, server: MetricsServer) -> None:
        config = await self._api.find(CONFIG_MAP, front_proxy.NAMESPACE, front_proxy.CONFIG_MAP)
        allowed = front_proxy_of(config)
        now = self._clock()
        if self._secured is None or self._secured[1] != allowed or self._secured[0].due(now):
            serving = self._authority.issue([self._front.host], now)
            server.secure(serving, allowed)
            self._secured = serving, allowed
            _logger.info("serves the metrics API with a certificate until %s", serving.until)
