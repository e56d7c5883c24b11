import math
from collections import Counter

import pytest
import torch
from triptych_worker.domain import Sampling
from triptych_worker.language.sampling import Chosen, Draw, Scored, choose

pytestmark = pytest.mark.torch

EOS = frozenset({0})
# Probabilities 0.1, 0.2, 0.3, 0.4 at temperature 1.
LOGITS = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()


def drawn(sampling: Sampling, times: int, logits: torch.Tensor = LOGITS) -> Counter[int]:
    rows = logits.repeat(times, 1)
    chosen = choose(rows, [Draw(sampling, index) for index in range(times)], frozenset())
    return Counter(token.token_id for token in chosen if token is not None)


def test_greedy_takes_the_most_likely_of_each_row() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, 3.0, 1.0]])
    assert choose(logits, [Draw(Sampling(), 0)] * 2, EOS) == [Chosen(1), Chosen(0)]


def test_the_same_seed_and_index_draw_the_same_token_in_any_batch() -> None:
    sampling = Sampling(temperature=1.0, seed=7)
    alone = [choose(LOGITS[None].clone(), [Draw(sampling, i)], EOS)[0] for i in range(20)]
    together = choose(LOGITS.repeat(20, 1), [Draw(sampling, i) for i in range(20)], EOS)
    assert alone == together
    assert len(set(together)) > 1


def test_another_seed_draws_other_tokens() -> None:
    one, other = (
        choose(
            LOGITS.repeat(50, 1),
            [Draw(Sampling(temperature=1.0, seed=seed), i) for i in range(50)],
            EOS,
        )
        for seed in (1, 2)
    )
    assert one != other


def test_tokens_come_as_often_as_they_are_likely() -> None:
    counts = drawn(Sampling(temperature=1.0), 4000)
    for token_id, probability in enumerate((0.1, 0.2, 0.3, 0.4)):
        expected = 4000 * probability
        assert abs(counts[token_id] - expected) < 5 * math.sqrt(expected)


def test_a_low_temperature_is_greedy_and_the_lowest_one_too() -> None:
    assert set(drawn(Sampling(temperature=0.01), 200)) == {3}
    assert set(drawn(Sampling(temperature=1e-30), 50)) == {3}


def test_top_k_keeps_the_most_likely() -> None:
    counts = drawn(Sampling(temperature=1.0, top_k=2), 1000)
    assert set(counts) == {2, 3}
    assert abs(counts[3] - 1000 * 4 / 7) < 80


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.3, {3}), (0.4, {3}), (0.5, {2, 3}), (0.75, {1, 2, 3}), (1.0, {0, 1, 2, 3})],
)
def test_top_p_keeps_the_fewest_tokens_with_that_much_probability(
    top_p: float, kept: set[int]
) -> None:
    assert set(drawn(Sampling(temperature=1.0, top_p=top_p), 500)) == kept


def test_top_p_is_of_what_top_k_left() -> None:
    assert set(drawn(Sampling(temperature=1.0, top_k=2, top_p=0.5), 300)) == {3}


def test_a_flat_distribution_wider_than_the_first_candidates_keeps_its_nucleus() -> None:
    counts = drawn(Sampling(temperature=1.0, top_p=0.9), 400, torch.zeros(3000))
    assert len(counts) > 300


def test_the_end_is_suppressed_below_the_least_tokens_and_only_there() -> None:
    logits = torch.tensor([[9.0, 1.0, 0.0]]).repeat(3, 1)
    draws = [Draw(Sampling(min_tokens=2), index) for index in range(3)]
    assert choose(logits, draws, EOS) == [Chosen(1), Chosen(1), Chosen(0)]


def test_log_probabilities_are_of_the_distribution_before_anything_changed_it() -> None:
    sampling = Sampling(temperature=0.5, top_k=1, min_tokens=5, logprobs=True, top_logprobs=2)
    (chosen,) = choose(LOGITS[None].clone(), [Draw(sampling, 0)], frozenset({3}))
    assert chosen is not None
    assert chosen.token_id == 2
    assert chosen.scored == Scored(2, pytest.approx(math.log(0.3)))
    assert chosen.top == (
        Scored(3, pytest.approx(math.log(0.4))),
        Scored(2, pytest.approx(math.log(0.3))),
    )


def test_no_log_probabilities_unless_asked_for() -> None:
    (chosen,) = choose(LOGITS[None].clone(), [Draw(Sampling(top_logprobs=3), 0)], EOS)
    assert chosen == Chosen(3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_gives_no_token_and_harms_no_other(
    bad: float, temperature: float
) -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0], [0.0, bad, 2.0], [0.0, 1.0, 30.0]])
    sampling = Sampling(temperature=temperature)
    chosen = choose(logits, [Draw(sampling, 0)] * 3, frozenset())
    assert chosen[0] is not None
    assert chosen[1] is None
    assert chosen[2] == Chosen(2)


def test_half_precision_logits_are_sampled_in_full_precision() -> None:
    counts = drawn(Sampling(temperature=1.0), 500, LOGITS.to(torch.bfloat16))
    assert set(counts) == {0, 1, 2, 3}
