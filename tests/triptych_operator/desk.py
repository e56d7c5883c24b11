"""An API server in memory, and the parts of an operator over it that no watch feeds."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

from api_server import ApiServer
from children_of import PLATFORM, SHAPES
from triptych_operator.api.status import ServiceStatus
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.kinds import OBSERVED, SERVICE_RESOURCE
from triptych_operator.controller.audit import Audit
from triptych_operator.controller.reconcile import Reconciler
from triptych_operator.desired.wanted import WantedCache
from triptych_operator.observed.store import ServiceKey, Store


@dataclass
class Desk:
    """One reconciler, and what it may know."""

    server: ApiServer
    api: Api
    store: Store = field(default_factory=Store)
    changed: list[ServiceKey] = field(default_factory=list)  # what answers told news of
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __post_init__(self) -> None:
        self.wanted = WantedCache(PLATFORM)
        self.reconciler = Reconciler(
            self.api, self.store, self.wanted, self.changed.append, lambda: self.now
        )
        self._audit = Audit(self.api, self.store, (None,), 1.0, lambda _: None)

    async def observe(self) -> None:
        """Takes in what stands, by lists; what is gone is forgotten."""
        for kind in OBSERVED:
            await self._audit.compare(kind)
        self.server.calls.clear()

    async def reconcile(self, key: ServiceKey = SHAPES) -> None:
        """Looks at a resource with everything known."""
        await self.observe()
        await self.reconciler.reconcile(key)

    def status(self, name: str = "shapes") -> ServiceStatus:
        """The status that stands."""
        found = self.server.get(SERVICE_RESOURCE, "n", name)
        return ServiceStatus.model_validate_json(json.dumps((found or {}).get("status") or {}))
