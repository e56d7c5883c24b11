"""Pages of metrics are read as the library reads them, or not at all."""

from __future__ import annotations

import random

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from triptych_contract.names import Metric, Stage
from triptych_operator.signals.page import PageError, Reading, Series, read_page
from triptych_worker.domain import CacheStats, Capacity, Holding, Load
from triptych_worker.serving.metrics import Metrics

RUNNING = b"triptych_running_requests 3.0\n"


def worker_page(seed: int) -> bytes:
    """What a worker serves after some work of any kind."""
    chance = random.Random(seed)
    metrics = Metrics()
    for _ in range(chance.randint(0, 50)):
        metrics.seconds(chance.choice(WORKER_STAGES), chance.expovariate(1.0))
        metrics.time_per_output_token(chance.expovariate(20.0))
        metrics.add(Metric.VISUAL_TOKENS, chance.randint(1, 10**9))
        metrics.add(Metric.INPUT_TOKENS, chance.randint(1, 10**6))
        metrics.add(Metric.IMAGES)
    load = Load(*(chance.randint(0, 10**7) for _ in range(5)))
    caches = [CacheStats("encoder", 1, 2, 3, 4, 5, 6.5)]
    metrics.watch(
        lambda: load,
        lambda: Capacity(kv_tokens=chance.randint(1, 10**8)),
        lambda: caches,
        lambda: [Holding("encoder", "f" * 64, 3, 1024, 0)],
    )
    return generate_latest(metrics.registry)


WORKER_STAGES = (Stage.ENCODE_QUEUE, Stage.PREFILL_QUEUE, Stage.DECODE)
OF_WORKERS = {
    f"{Metric.STAGE_SECONDS}_sum",
    f"{Metric.STAGE_SECONDS}_count",
    f"{Metric.TPOT_SECONDS}_sum",
    f"{Metric.TPOT_SECONDS}_count",
    Metric.BUSY_SECONDS,
    Metric.CACHE_HITS,
    Metric.CACHE_MISSES,
    Metric.CACHE_EVICTIONS,
    Metric.CACHE_BYTES,
    Metric.CACHE_CAPACITY_BYTES,
    Metric.CACHE_SECONDS_SAVED,
    Metric.IMAGES,
    Metric.VISUAL_TOKENS,
    Metric.INPUT_TOKENS,
    Metric.RUNNING,
    Metric.WAITING,
    Metric.BACKLOG_TOKENS,
    Metric.KV_TOKENS_USED,
    Metric.KV_TOKENS_CAPACITY,
    Metric.LEASES,
}
LABELS = {"stage", "modality", "cache"}


def by_the_library(page: bytes) -> dict[Series, float]:
    """The same series by the library's parser."""
    wanted = {series.sample for series in read_page(page, 0.0).values}
    found = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            if sample.name in wanted:
                label = next((v for k, v in sample.labels.items() if k in LABELS), "")
                found[Series(sample.name, label)] = sample.value
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_workers_page_is_read_as_by_the_library(seed: int) -> None:
    page = worker_page(seed)
    reading = read_page(page, 12.5)
    assert reading == Reading(12.5, by_the_library(page))
    assert {series.sample for series in reading.values} == OF_WORKERS


@pytest.mark.torch
def test_a_gateways_page_is_read_as_by_the_library() -> None:
    from triptych_gateway.journal import Journal  # noqa: PLC0415 - loads torch
    from triptych_gateway.metrics import GatewayMetrics  # noqa: PLC0415
    from triptych_gateway.processors.cache import ProcessorCache  # noqa: PLC0415

    metrics = GatewayMetrics(ProcessorCache(1024))
    for seconds, multimodal in ((0.5, True), (0.25, True), (0.125, False)):
        metrics.first_token(seconds, Journal(), multimodal=multimodal)
    metrics.running.set(7)
    metrics.without_encoder.set(2)
    page = generate_latest(metrics.registry)
    values = read_page(page, 0.0).values
    assert values == by_the_library(page)
    assert values[Series(f"{Metric.TTFT_SECONDS}_sum", "multimodal")] == 0.75
    assert values[Series(f"{Metric.TTFT_SECONDS}_count", "text")] == 1
    assert values[Series(Metric.RUNNING)] == 7
    assert values[Series(Metric.WITHOUT_ENCODER)] == 2


def test_further_labels_are_summed_over() -> None:
    page = RUNNING + (
        b'triptych_stage_duration_seconds_sum{model="a",stage="encode_queue"} 1.5\n'
        b'triptych_stage_duration_seconds_sum{stage="encode_queue",model="b, }"} 2 1700000000000\n'
        b'triptych_images_encoded_total{model="a"} 1e3\n'
    )
    with pytest.raises(PageError):
        read_page(page, 0.0)  # a brace in a label is none of ours
    values = read_page(page.replace(b", }", b""), 0.0).values
    assert values[Series(f"{Metric.STAGE_SECONDS}_sum", "encode_queue")] == 3.5
    assert values[Series(Metric.IMAGES)] == 1000


def test_what_is_not_asked_for_may_be_anything() -> None:
    page = (
        b"# HELP triptych_running_requests 1 {\n"
        b"# TYPE triptych_running_requests gauge\n"
        b"triptych_running_requests_total nonsense\n"
        b"x_triptych_waiting_requests nonsense\n"
        b"\xff\xfe\x00\n" + RUNNING
    )
    assert read_page(page, 0.0).values == {Series(Metric.RUNNING): 3}


@pytest.mark.parametrize(
    "line",
    [
        b"triptych_waiting_requests NaN",
        b"triptych_waiting_requests +Inf",
        b"triptych_waiting_requests -1",
        b"triptych_waiting_requests 1e16",
        b"triptych_waiting_requests 1_0",
        b"triptych_waiting_requests one",
        b"triptych_waiting_requests ",
        b"triptych_waiting_requests 1 2 3",
        b"triptych_waiting_requests 1\r",
        b'triptych_waiting_requests{a="b" 1',
        b"triptych_waiting_requests{a=b} 1",
        b'triptych_waiting_requests{a="b"c="d"} 1',
        b"triptych_stage_duration_seconds_sum 1",
        b'triptych_stage_duration_seconds_sum{queue="encode"} 1',
        b"triptych_waiting_requests \xff",
        b'triptych_waiting_requests{a="' + b"b" * 600 + b'"} 1',
    ],
)
def test_a_line_that_cannot_be_read_spoils_the_page(line: bytes) -> None:
    with pytest.raises(PageError):
        read_page(RUNNING + line + b"\n", 0.0)


@pytest.mark.parametrize(
    "page", [b"", b"<html>", b"up 1\n", bytes(range(256)) * 100, b"triptych_waiting_requests 1\n"]
)
def test_a_page_of_somebody_else_is_none(page: bytes) -> None:
    with pytest.raises(PageError, match="not one of a worker or gateway"):
        read_page(page, 0.0)


def test_a_page_of_far_too_many_samples_is_given_up_early() -> None:
    with pytest.raises(PageError, match="more than 1000 samples"):
        read_page(RUNNING * 1001, 0.0)


def test_an_empty_registry_is_no_page() -> None:
    with pytest.raises(PageError):
        read_page(generate_latest(CollectorRegistry()), 0.0)
