"""What one request took, and what many requests come to. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer. Times are seconds from the moment the request was sent."""

    seed: int  # of its picture
    first: float  # until the first text
    last: float  # until the last text
    total: float  # until the answer was closed
    tokens: int  # generated, as the server counts them
    text: str
    stages: Mapping[str, float] = field(default_factory=dict)  # seconds by stage, if it tells


@dataclass(frozen=True, slots=True)
class Load:
    """Samples of one stretch of load on one system."""

    samples: tuple[Sample, ...]
    seconds: float  # wall time from the first request to the last answer
    cpu_seconds: float  # of the system's processes meanwhile, without the client's


@dataclass(frozen=True, slots=True)
class Summary:
    """Loads of the same kind taken together. Times in seconds, rates per second."""

    requests: int
    ttft_p50: float
    ttft_p99: float
    per_token: float
    requests_per_second: float
    tokens_per_second: float
    cores: float
    core_seconds: float  # of one request; hardly changes when others use the machine


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile; of few values, P99 is the largest."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def summarise(loads: Sequence[Load]) -> Summary:
    """One line of the table from the rounds of one cell."""
    samples = [sample for load in loads for sample in load.samples]
    seconds = sum(load.seconds for load in loads)
    gaps = [(s.last - s.first) / (s.tokens - 1) for s in samples if s.tokens > 1]
    return Summary(
        requests=len(samples),
        ttft_p50=percentile([sample.first for sample in samples], 50),
        ttft_p99=percentile([sample.first for sample in samples], 99),
        per_token=percentile(gaps, 50),
        requests_per_second=len(samples) / seconds,
        tokens_per_second=sum(sample.tokens for sample in samples) / seconds,
        cores=sum(load.cpu_seconds for load in loads) / seconds,
        core_seconds=sum(load.cpu_seconds for load in loads) / len(samples),
    )


def same_answers(reference: Sequence[Sample], other: Sequence[Sample]) -> tuple[int, int]:
    """How many answers of ``other`` are those of ``reference``, and of how many pictures."""
    expected = {sample.seed: sample.text for sample in reference}
    shared = [sample for sample in other if sample.seed in expected]
    return sum(sample.text == expected[sample.seed] for sample in shared), len(shared)
