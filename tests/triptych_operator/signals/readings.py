"""Readings for tests."""

from __future__ import annotations

from collections.abc import Mapping

from triptych_contract.names import Metric, Stage
from triptych_operator.signals.history import History
from triptych_operator.signals.page import Reading, Series

WINDOW = 30.0


def queue(stage: Stage, waited: float, requests: float) -> dict[Series, float]:
    """Totals of a queue."""
    return histogram(Metric.STAGE_SECONDS, stage, waited, requests)


def histogram(name: str, label: str, total: float, count: float) -> dict[Series, float]:
    """Sum and count of a histogram."""
    return {Series(f"{name}_sum", label): total, Series(f"{name}_count", label): count}


def history(*readings: Mapping[Series, float] | tuple[float, Mapping[Series, float]]) -> History:
    """A pod's readings, ten seconds apart, or each at a time of its own."""
    made = History(WINDOW)
    for number, one in enumerate(readings):
        at, values = one if isinstance(one, tuple) else (10.0 * number, one)
        made.add(Reading(at, values))
    return made
