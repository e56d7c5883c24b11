from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from triptych_contract.names import Metric, Stage
from triptych_worker.domain import CacheStats, Capacity, Holding, Load
from triptych_worker.serving.metrics import Metrics, MetricsServer

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(metrics: Metrics) -> Samples:
    """Every sample by name and labels, as Prometheus reads them over HTTP."""
    server = MetricsServer(metrics.registry, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        server.close()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def watched(load: Load, *caches: CacheStats) -> Metrics:
    metrics = Metrics()
    held = Holding("encoder", "ab", entries=1, bytes=7, leased_bytes=0)
    metrics.watch(lambda: load, lambda: Capacity(kv_tokens=800), lambda: caches, lambda: [held])
    return metrics


def test_every_series_is_there_at_zero_before_anything_happens() -> None:
    samples = scraped(watched(Load()))
    assert samples[(f"{Metric.STAGE_SECONDS}_count", (("stage", "prefill"),))] == 0
    assert samples[(Metric.REQUESTS, (("outcome", "ok"),))] == 0
    assert samples[(Metric.REQUESTS, (("outcome", "Overloaded"),))] == 0
    assert samples[(f"{Metric.TPOT_SECONDS}_count", ())] == 0
    transfer = (("direction", "sent"), ("kind", "kv"), ("transport", "nixl"))
    assert samples[(Metric.TRANSFER_BYTES, transfer)] == 0


def test_what_stages_report_is_counted_where_it_belongs() -> None:
    metrics = watched(Load())
    metrics.seconds(Stage.ENCODE, 0.3)
    metrics.time_per_output_token(0.02)
    metrics.add(Metric.IMAGES)
    metrics.add(Metric.VISUAL_TOKENS, 64)
    metrics.add(Metric.TRANSFER_BYTES, 10, kind="embedding", transport="grpc", direction="received")
    samples = scraped(metrics)
    assert samples[(f"{Metric.STAGE_SECONDS}_sum", (("stage", "encode"),))] == 0.3
    bucket = (("le", "0.5"), ("stage", "encode"))
    assert samples[(f"{Metric.STAGE_SECONDS}_bucket", bucket)] == 1
    assert samples[(f"{Metric.TPOT_SECONDS}_sum", ())] == 0.02
    assert samples[(Metric.IMAGES, ())] == 1
    assert samples[(Metric.VISUAL_TOKENS, ())] == 64
    transfer = (("direction", "received"), ("kind", "embedding"), ("transport", "grpc"))
    assert samples[(Metric.TRANSFER_BYTES, transfer)] == 10


def test_load_and_caches_are_read_when_somebody_looks() -> None:
    load = Load(running=2, waiting=3, backlog_tokens=500, kv_tokens_used=700, leases=4)
    cache = CacheStats("embedding", 5, 6, 7, 80, 90, 1.5)
    samples = scraped(watched(load, cache))
    gauges = {
        Metric.RUNNING: 2,
        Metric.WAITING: 3,
        Metric.BACKLOG_TOKENS: 500,
        Metric.KV_TOKENS_USED: 700,
        Metric.KV_TOKENS_CAPACITY: 800,
        Metric.LEASES: 4,
    }
    of_cache = {
        Metric.CACHE_HITS: 5,
        Metric.CACHE_MISSES: 6,
        Metric.CACHE_EVICTIONS: 7,
        Metric.CACHE_BYTES: 80,
        Metric.CACHE_CAPACITY_BYTES: 90,
        Metric.CACHE_SECONDS_SAVED: 1.5,
    }
    assert {name: samples[(name, ())] for name in gauges} == gauges
    labels = (("cache", "embedding"),)
    assert {name: samples[(name, labels)] for name in of_cache} == of_cache


def test_it_tells_which_encoders_things_are_held() -> None:
    samples = scraped(watched(Load()))
    assert (
        samples[(Metric.CACHE_FINGERPRINT_BYTES, (("cache", "encoder"), ("fingerprint", "ab")))]
        == 7
    )
