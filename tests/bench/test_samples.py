import pytest

from bench.samples import Load, Sample, percentile, same_answers, summarise


def sample(seed: int, *, first: float = 0.5, last: float = 2.0, tokens: int = 16) -> Sample:
    return Sample(seed, first, last, last + 0.1, tokens, f"answer {seed}")


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 3.0), (99, 5.0), (1, 1.0), (60, 3.0), (61, 4.0)]
)
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: float) -> None:
    assert percentile([5.0, 1.0, 4.0, 2.0, 3.0], percent) == expected


def test_rates_are_over_the_wall_time_of_all_rounds() -> None:
    loads = [
        Load((sample(1), sample(2)), seconds=4.0, cpu_seconds=6.0),
        Load((sample(3), sample(4)), seconds=6.0, cpu_seconds=9.0),
    ]

    summary = summarise(loads)

    assert summary.requests == 4
    assert summary.requests_per_second == pytest.approx(0.4)
    assert summary.tokens_per_second == pytest.approx(6.4)
    assert summary.cores == pytest.approx(1.5)


def test_the_time_per_token_leaves_the_first_one_out() -> None:
    load = Load((sample(1, first=0.5, last=2.0, tokens=16),), seconds=2.1, cpu_seconds=0.0)

    assert summarise([load]).per_token == pytest.approx(0.1)


def test_p99_of_few_requests_is_the_slowest() -> None:
    load = Load(tuple(sample(n, first=0.1 * n) for n in range(1, 9)), 8.0, 0.0)

    assert summarise([load]).ttft_p99 == pytest.approx(0.8)
    assert summarise([load]).ttft_p50 == pytest.approx(0.4)


def test_answers_are_compared_picture_by_picture() -> None:
    reference = [sample(1), sample(2), sample(3)]
    other = [sample(3), sample(2), Sample(1, 0.1, 0.2, 0.3, 16, "something else"), sample(9)]

    assert same_answers(reference, other) == (2, 3)
