"""What autoscalers and Deployments of one service say, again and again, in a thread of its own."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from cluster.kubectl import Cluster
from triptych_contract.names import Tier
from triptych_operator.api.quantities import parse_quantity

PERIOD_SECONDS: Final = 2.0
COMPONENT: Final = "app.kubernetes.io/component"
INSTANCE: Final = "app.kubernetes.io/instance"

Object = dict[str, Any]  # as the API server answers


@dataclass(frozen=True, slots=True)
class TierReading:
    """One tier: pods wanted by its autoscaler, pods ready, and its signal against the target.

    ``load`` is the signal over what one pod should have: 2.5 asks for three pods. ``None`` means
    that the autoscaler has no value.
    """

    desired: int
    ready: int
    load: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """All tiers at one moment; ``at`` is in seconds of ``time.monotonic``."""

    at: float
    tiers: Mapping[Tier, TierReading]


@dataclass
class Watch:
    """Readings so far, and what went wrong with looks that failed."""

    cluster: Cluster
    service: str
    readings: list[Reading] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Looks until it is stopped."""
        while not self._stop.wait(PERIOD_SECONDS):
            try:
                self.readings.append(self.look())
            except (subprocess.SubprocessError, OSError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    def look(self) -> Reading:
        """What stands now."""
        found = self.cluster.kubectl(
            "get", "horizontalpodautoscalers,deployments", "-o", "json",
            "-l", f"{INSTANCE}={self.service}",
        )  # fmt: skip
        return reading(time.monotonic(), json.loads(found)["items"])

    def calm_since(self, moment: float) -> bool:
        """Whether at the last look, after ``moment``, every tier wanted and had one pod."""
        if not self.readings or self.readings[-1].at < moment:
            return False
        return all(one.desired == one.ready == 1 for one in self.readings[-1].tiers.values())

    def stop(self) -> None:
        """Ends ``run`` after the look under way."""
        self._stop.set()


@contextmanager
def watching(cluster: Cluster, service: str) -> Iterator[Watch]:
    """Looks within the block."""
    watch = Watch(cluster, service)
    thread = threading.Thread(target=watch.run, name="watch")
    thread.start()
    try:
        yield watch
    finally:
        watch.stop()
        thread.join()


def reading(at: float, items: list[Object]) -> Reading:
    """What autoscalers and Deployments say, by tier; tiers without an autoscaler are left out."""
    ready = {
        Tier(one["metadata"]["labels"][COMPONENT]): one["status"].get("readyReplicas", 0)
        for one in items
        if one["kind"] == "Deployment"
    }
    scaled = {
        Tier(one["metadata"]["labels"][COMPONENT]): one
        for one in items
        if one["kind"] == "HorizontalPodAutoscaler"
    }
    tiers = {
        tier: TierReading(
            desired=one.get("status", {}).get("desiredReplicas", 0),
            ready=ready.get(tier, 0),
            load=_load(one),
        )
        for tier, one in scaled.items()
    }
    return Reading(at, tiers)


def _load(autoscaler: Object) -> float | None:
    """The largest signal of an autoscaler, in pods that it asks for."""
    status = autoscaler.get("status", {})
    pods = status.get("currentReplicas", 0)
    shares = [
        share
        for wanted, found in zip(
            autoscaler["spec"]["metrics"], status.get("currentMetrics") or (), strict=False
        )
        if (share := _share(wanted, found)) is not None
    ]
    return max(shares) * pods if shares else None


def _share(wanted: Object, found: Object) -> float | None:
    """One signal over its target; above 1 asks for more pods than there are."""
    if not found.get("type"):  # never measured
        return None
    kind = {"External": "external", "Resource": "resource"}[wanted["type"]]
    target, current = wanted[kind]["target"], found[kind]["current"]
    for name in ("averageValue", "value", "averageUtilization"):
        if name in target and name in current:
            return float(_number(current[name]) / _number(target[name]))
    return None


def _number(value: object) -> float:
    return float(parse_quantity(str(value)))
