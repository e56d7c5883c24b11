"""Prometheus metrics of a worker: what stages report, and what is read from them at a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from triptych_contract.errors import Reason
from triptych_contract.names import SECONDS_BUCKETS, TPOT_BUCKETS, Metric, Stage

from triptych_worker.domain import CacheStats, Capacity, HandleKind, Holding, Load

# The stages of a request's time that a worker measures; the gateway measures the others.
_STAGES: Final = (
    Stage.ENCODE_QUEUE,
    Stage.ENCODE,
    Stage.EMBEDDING_TRANSFER,
    Stage.PREFILL_QUEUE,
    Stage.PREFILL,
    Stage.KV_TRANSFER,
    Stage.DECODE_QUEUE,
    Stage.DECODE,
)
_COUNTERS: Final[Mapping[str, str]] = {
    Metric.IMAGES: "Pictures that were encoded",
    Metric.VISUAL_TOKENS: "Embedding rows that were encoded",
    Metric.INPUT_TOKENS: "Prompt tokens that were prefilled, visual ones included",
    Metric.OUTPUT_TOKENS: "Tokens that were generated",
}
_COMPUTING: Final = (Stage.ENCODE, Stage.PREFILL, Stage.DECODE)
_OUTCOMES: Final = ("ok", "cancelled", *Reason)
_TRANSPORTS: Final = ("grpc", "nixl")
_DIRECTIONS: Final = ("sent", "received")


class Metrics:
    """Implements ``domain.Observer``. Every series exists from the start, at zero."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # the library left it so
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            Metric.STAGE_SECONDS,
            "Duration of a stage of a request",
            ["stage"],
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )
        self._per_token = Histogram(
            Metric.TPOT_SECONDS,
            "Time between two tokens of an answer",
            buckets=TPOT_BUCKETS,
            registry=self.registry,
        )
        self._counters = {
            name: Counter(name, text, registry=self.registry) for name, text in _COUNTERS.items()
        }
        self._counters[Metric.REQUESTS] = Counter(
            Metric.REQUESTS, "Calls of work by outcome", ["outcome"], registry=self.registry
        )
        self._counters[Metric.BUSY_SECONDS] = Counter(
            Metric.BUSY_SECONDS,
            "Time that a stage computed",
            ["stage"],
            registry=self.registry,
        )
        self._counters[Metric.TRANSFER_BYTES] = Counter(
            Metric.TRANSFER_BYTES,
            "Bytes of tensors that moved between processes",
            ["kind", "transport", "direction"],
            registry=self.registry,
        )
        self._create_series()

    def seconds(self, stage: Stage, value: float) -> None:
        """One duration of ``stage``."""
        self._seconds.labels(stage=stage).observe(value)

    def time_per_output_token(self, value: float) -> None:
        """Seconds between two tokens of one answer."""
        self._per_token.observe(value)

    def add(self, metric: str, amount: float = 1.0, **labels: str) -> None:
        """Increases the counter ``metric``."""
        counter = self._counters[metric]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def watch(
        self,
        load: Callable[[], Load],
        capacity: Callable[[], Capacity],
        caches: Callable[[], Iterable[CacheStats]],
        holdings: Callable[[], Iterable[Holding]],
    ) -> None:
        """Reads these at every scrape, on the scrape's own thread."""
        self.registry.register(_Gauges(load, capacity, caches, holdings))

    def _create_series(self) -> None:
        for stage in _STAGES:
            self._seconds.labels(stage=stage)
        for stage in _COMPUTING:
            self._counters[Metric.BUSY_SECONDS].labels(stage=stage)
        for outcome in _OUTCOMES:
            self._counters[Metric.REQUESTS].labels(outcome=outcome)
        for kind in HandleKind:
            for transport in _TRANSPORTS:
                for direction in _DIRECTIONS:
                    self._counters[Metric.TRANSFER_BYTES].labels(kind, transport, direction)


class MetricsServer:
    """Serves ``/metrics`` on a thread of its own, so a scrape never waits for the event loop."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Gauges(Collector):
    """What can be asked at any time is not counted twice: it is read when somebody looks."""

    def __init__(
        self,
        load: Callable[[], Load],
        capacity: Callable[[], Capacity],
        caches: Callable[[], Iterable[CacheStats]],
        holdings: Callable[[], Iterable[Holding]],
    ) -> None:
        self._load = load
        self._capacity = capacity
        self._caches = caches
        self._holdings = holdings

    def collect(self) -> Iterator[Family]:
        yield from _load_families(self._load(), self._capacity())
        yield from _cache_families(list(self._caches()))
        yield _holdings_family(self._holdings())


def _load_families(load: Load, capacity: Capacity) -> Iterator[Family]:
    for name, text, value in (
        (Metric.RUNNING, "Requests that a stage works on", load.running),
        (Metric.WAITING, "Requests that wait for a stage", load.waiting),
        (Metric.BACKLOG_TOKENS, "Tokens that wait: visual or prompt tokens", load.backlog_tokens),
        (Metric.KV_TOKENS_USED, "Tokens of the KV pool that are reserved", load.kv_tokens_used),
        (Metric.KV_TOKENS_CAPACITY, "Tokens that the KV pool holds", capacity.kv_tokens),
        (Metric.LEASES, "Leases on tensors of this process", load.leases),
    ):
        yield GaugeMetricFamily(name, text, value)


def _cache_families(caches: Sequence[CacheStats]) -> Iterator[Family]:
    for counter, text, totals in (
        (Metric.CACHE_HITS, "Look-ups that were answered", [c.hits for c in caches]),
        (Metric.CACHE_MISSES, "Look-ups that were not", [c.misses for c in caches]),
        (Metric.CACHE_EVICTIONS, "Entries that made room", [c.evictions for c in caches]),
        (
            Metric.CACHE_SECONDS_SAVED,
            "Work that hits made unnecessary",
            [c.seconds_saved for c in caches],
        ),
    ):
        counted = CounterMetricFamily(counter, text, labels=["cache"])
        for cache, total in zip(caches, totals, strict=True):
            counted.add_metric([cache.cache], total)
        yield counted
    for gauge, text, values in (
        (Metric.CACHE_BYTES, "Bytes that are held", [c.bytes for c in caches]),
        (Metric.CACHE_CAPACITY_BYTES, "Bytes that may be held", [c.capacity_bytes for c in caches]),
    ):
        held = GaugeMetricFamily(gauge, text, labels=["cache"])
        for cache, value in zip(caches, values, strict=True):
            held.add_metric([cache.cache], value)
        yield held


def _holdings_family(holdings: Iterable[Holding]) -> Family:
    family = GaugeMetricFamily(
        Metric.CACHE_FINGERPRINT_BYTES,
        "Bytes that are held of each encoder's making",
        labels=["cache", "fingerprint"],
    )
    for held in holdings:
        family.add_metric([held.cache, held.fingerprint], held.bytes)
    return family
