"""A resource whose signals are looked at, and a board of signals that is written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from children_of import PLATFORM, SHAPES, body, make_ready, resource, scaled
from desk import Desk
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.cluster.kinds import DEPLOYMENT
from triptych_operator.controller.scaling import Scaler
from triptych_operator.desired.platform import Platform
from triptych_operator.signals.board import SignalBoard, TierSignals
from triptych_operator.signals.caches import CacheUse

ON_WAIT: dict[str, Any] = {"max": 5, "metrics": [{"signal": "QueueWait", "target": "500m"}]}


@dataclass
class Scene:
    """A resource that stands, and a board that is written by hand."""

    desk: Desk
    board: SignalBoard = field(default_factory=lambda: SignalBoard(1e9))
    now: float = 1000.0
    platform: Platform = PLATFORM

    def __post_init__(self) -> None:
        self.scaler = self.restarted()

    def restarted(self) -> Scaler:
        return Scaler(
            self.desk.api, self.desk.store, self.board, self.platform, now=lambda: self.now
        )

    async def stands(self, **changes: Any) -> None:
        resource(self.desk.server, **changes)
        for _ in range(6):
            make_ready(self.desk.server)
            await self.desk.reconcile()

    def measures(
        self,
        tier: Tier,
        values: Mapping[Signal, float],
        work: Mapping[str, float] | None = None,
        *caches: CacheUse,
    ) -> None:
        told = work or {}
        signals = TierSignals(tier, self.now, len(told), len(told), values, told, caches)
        self.board.put(SHAPES, signals)

    async def look(self, later: float = 0.0) -> list[str]:
        """Looks once, after so many seconds; the writes that it took."""
        self.now += later
        await self.desk.observe()
        await self.scaler.look(SHAPES)
        return self.desk.server.writes

    def encoders(self) -> int:
        return int(body(self.desk.server, "Deployment", "shapes-encoder")["spec"]["replicas"])

    def set_encoders(self, pods: int) -> None:
        manifest = scaled("shapes-encoder", pods)
        self.desk.server.put(DEPLOYMENT, manifest, manager="autoscaler")
        make_ready(self.desk.server)
