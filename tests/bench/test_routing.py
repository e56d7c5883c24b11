import pytest

from bench.caches.routing import Traffic, content, round_robin, simulated

TRAFFIC = Traffic(pictures=400, requests=6_000)


def test_one_encoder_has_the_same_however_it_is_chosen() -> None:
    ours, theirs = (simulated(TRAFFIC, [1], 60, one) for one in (content, round_robin()))
    assert (ours.here, ours.requests) == (theirs.here, 3_000)
    assert ours.taken_over == 0


def test_more_encoders_have_more_by_content_and_no_more_in_turn() -> None:
    alone = simulated(TRAFFIC, [1], 60, content).here_share
    by_content = simulated(TRAFFIC, [4], 60, content)
    in_turn = simulated(TRAFFIC, [4], 60, round_robin())
    assert by_content.here_share > alone + 0.1
    assert abs(in_turn.here_share - alone) < 0.03
    assert by_content.encoded_share < in_turn.encoded_share


def test_a_new_encoder_takes_over_what_it_would_have_to_encode() -> None:
    before, after = (simulated(TRAFFIC, parts, 400, content) for parts in ([3], [3, 4]))
    assert before.here > after.here
    assert after.taken_over > before.taken_over
    assert after.encoded_share == pytest.approx(before.encoded_share, abs=0.01)
