import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_operator.scaling.departures import AT_A_TIME, changes, cost


@pytest.mark.parametrize(
    ("work", "expected"), [(0.0, 0), (0.5, 1), (1.0, 1), (2.0, 2), (3.0, 2), (4.0, 3), (64.0, 7)]
)
def test_a_cost_is_a_power_of_two_of_what_is_in_hand(work: float, expected: int) -> None:
    assert cost(work) == expected


def test_what_would_tell_nothing_new_is_not_written() -> None:
    standing = {"a": 0, "b": 1, "c": 3, "d": 3}
    work = {"a": 0.0, "b": 2.0, "c": 2.0, "d": 40.0}
    assert changes(work, standing) == {"d": 6}


def test_to_become_empty_or_busy_is_always_told() -> None:
    assert changes({"a": 1.0, "b": 0.0}, {"a": 0, "b": 1}) == {"b": 0, "a": 1}


def test_pods_that_do_not_answer_or_do_not_stay_keep_theirs() -> None:
    assert changes({"a": 9.0, "gone": 9.0}, {"a": 0, "silent": 4}) == {"a": 4}


def test_one_pod_alone_has_none_to_be_compared_with() -> None:
    assert changes({"a": 9.0}, {"a": 0}) == {}


def test_of_many_the_emptiest_come_first_as_they_are_the_next_to_go() -> None:
    standing = {f"pod-{number:03}": 20 for number in range(50)}
    work = {pod: float(number) for number, pod in enumerate(standing)}
    first = changes(work, standing)
    assert list(first) == [f"pod-{number:03}" for number in range(AT_A_TIME)]


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1e6), min_size=2))
def test_once_all_is_written_there_is_nothing_more_to_write(work: dict[str, float]) -> None:
    standing = dict.fromkeys(work, 30)
    standing.update(changes(work, standing))
    assert changes(work, standing) == {}
    emptiest = min(work, key=lambda pod: work[pod])
    assert standing[emptiest] <= min(standing.values()) + 1
