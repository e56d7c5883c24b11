"""What the gateway measures, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from triptych_contract.errors import Reason
from triptych_contract.names import SECONDS_BUCKETS, TTFT_BUCKETS, Cache, Metric, Stage

from triptych_gateway.journal import Journal
from triptych_gateway.processors.cache import ProcessorCache

# The stages that run in this process; the others' histograms are the workers' own.
_OWN_STAGES: Final = (Stage.MEDIA_FETCH, Stage.MEDIA_DECODE, Stage.PROCESSOR)
_CACHE: Final = str(Cache.PROCESSOR)
_MODALITIES: Final = ("text", "multimodal")
_OUTCOMES: Final = ("ok", "cancelled", *Reason)


class GatewayMetrics:
    """Counters and histograms of requests. Every series exists from the start, at zero, so that a
    rate over the first of anything is not lost."""

    def __init__(self, cache: ProcessorCache) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # the library left it so
        self.registry = CollectorRegistry()
        self._requests = Counter(
            Metric.REQUESTS.removesuffix("_total"),
            "Requests by outcome: ok, cancelled, or the reason of an error.",
            ["outcome"],
            registry=self.registry,
        )
        self._first = Histogram(
            Metric.TTFT_SECONDS,
            "From the request's arrival to its first token.",
            ["modality"],
            buckets=TTFT_BUCKETS,
            registry=self.registry,
        )
        self._stages = Histogram(
            Metric.STAGE_SECONDS,
            "Time of the stages that run in the gateway.",
            ["stage"],
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )
        self._overhead = Histogram(
            Metric.GATEWAY_OVERHEAD_SECONDS,
            "Time to the first token that no stage of any tier accounts for.",
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )
        self.running = Gauge(
            Metric.RUNNING, "Requests that are being answered.", registry=self.registry
        )
        self.without_encoder = Gauge(
            Metric.WITHOUT_ENCODER,
            "Requests with pictures that no encoder is up for: they wait, or are encoded inline.",
            registry=self.registry,
        )
        self.registry.register(_CacheCollector(cache))
        self._create_series()

    def first_token(self, seconds: float, journal: Journal, *, multimodal: bool) -> None:
        """The first token of an answer came ``seconds`` after its request."""
        self._first.labels("multimodal" if multimodal else "text").observe(seconds)
        accounted = sum(journal.seconds.values())
        self._overhead.observe(max(0.0, seconds - accounted))
        for stage in _OWN_STAGES:
            if stage in journal.seconds:
                self._stages.labels(str(stage)).observe(journal.seconds[stage])

    def finished(self, outcome: str) -> None:
        """A request ended: ``ok``, ``cancelled`` or an error's reason."""
        self._requests.labels(outcome).inc()

    def _create_series(self) -> None:
        for outcome in _OUTCOMES:
            self._requests.labels(outcome)
        for modality in _MODALITIES:
            self._first.labels(modality)
        for stage in _OWN_STAGES:
            self._stages.labels(str(stage))


class _CacheCollector(Collector):
    """Reads the processor cache when it is asked, so the cache knows nothing of metrics."""

    def __init__(self, cache: ProcessorCache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[Family]:
        """The cache's totals and size."""
        cache = self._cache
        counters = (
            (Metric.CACHE_HITS, "Pictures found in the cache.", cache.hits),
            (Metric.CACHE_MISSES, "Pictures not found in the cache.", cache.misses),
            (Metric.CACHE_EVICTIONS, "Entries that made room for others.", cache.evictions),
            (Metric.CACHE_SECONDS_SAVED, "Time that hits did not take.", cache.seconds_saved),
        )
        for name, help_text, value in counters:
            counter = CounterMetricFamily(name.removesuffix("_total"), help_text, labels=["cache"])
            counter.add_metric([_CACHE], value)
            yield counter
        gauges = (
            (Metric.CACHE_BYTES, "Bytes held.", cache.size_bytes),
            (Metric.CACHE_CAPACITY_BYTES, "Bytes that may be held.", cache.capacity),
        )
        for name, help_text, size in gauges:
            gauge = GaugeMetricFamily(name, help_text, labels=["cache"])
            gauge.add_metric([_CACHE], size)
            yield gauge
        made = GaugeMetricFamily(
            Metric.CACHE_FINGERPRINT_BYTES,
            "Bytes held for each encoder.",
            labels=["cache", "fingerprint"],
        )
        for held in cache.holdings():
            made.add_metric([_CACHE, held.fingerprint], held.size_bytes)
        yield made
