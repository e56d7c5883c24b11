"""What a pod holds, read from the page of its metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from triptych_contract.errors import Unavailable
from triptych_contract.names import Metric


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes that one cache of a pod holds of one encoder's making."""

    pod: str
    tier: str
    cache: str
    fingerprint: str
    size_bytes: int


def holdings(pod: str, tier: str, page: str) -> Iterator[Holding]:
    """What the ``page`` of a pod's metrics says that it holds.

    Raises:
        Unavailable: it is no page of metrics.
    """
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == Metric.CACHE_FINGERPRINT_BYTES:
                    cache, fingerprint = sample.labels["cache"], sample.labels["fingerprint"]
                    yield Holding(pod, tier, cache, fingerprint, int(sample.value))
    except (ValueError, KeyError) as error:
        raise Unavailable(f"pod {pod} answered with something else than metrics") from error
