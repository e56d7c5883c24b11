from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_contract.errors import Overloaded, TooLarge
from triptych_worker.stages.encode_queue import Bounds, EncodeQueue, Flight, Throughput

BOUNDS = Bounds(batch_tokens=100, queue_tokens=300, inflight_bytes=1000)


def flight(name: str, tokens: int = 10, size: int = 1) -> Flight[str, str]:
    return Flight(name.encode(), name, tokens, size, admitted=0.0)


def queue_of(*flights: Flight[str, str], bounds: Bounds = BOUNDS) -> EncodeQueue[str, str]:
    queue: EncodeQueue[str, str] = EncodeQueue(bounds)
    for one in flights:
        queue.admit(one)
    return queue


def names(batch: list[Flight[str, str]]) -> list[str]:
    return [one.item for one in batch]


def test_a_batch_is_the_head_of_the_queue_within_the_budget() -> None:
    queue = queue_of(*(flight(name, 40) for name in "abcde"))
    assert names(queue.start_batch(1.0)) == ["a", "b"]
    assert names(queue.start_batch(2.0)) == ["c", "d"]
    assert names(queue.start_batch(3.0)) == ["e"]
    assert names(queue.start_batch(4.0)) == []


def test_a_picture_beyond_the_batch_budget_runs_alone_and_in_its_turn() -> None:
    queue = queue_of(flight("a", 10), flight("large", 250), flight("b", 10))
    batches = [names(queue.start_batch(0.0)) for _ in range(3)]
    assert batches == [["a"], ["large"], ["b"]]


def test_nothing_small_overtakes_what_does_not_fit() -> None:
    queue = queue_of(flight("a", 60), flight("b", 60), flight("c", 10))
    assert names(queue.start_batch(0.0)) == ["a"]
    assert names(queue.start_batch(0.0)) == ["b", "c"]


def test_a_full_queue_says_when_to_come_back() -> None:
    queue = queue_of(flight("a", 200), flight("b", 100))
    queue.throughput.measured(tokens=100, seconds=2.0)
    with pytest.raises(Overloaded) as caught:
        queue.admit(flight("c", 50))
    assert caught.value.retry_after == pytest.approx(7.0)  # 350 tokens at 50 a second
    queue.check_integrity()


def test_an_empty_queue_takes_a_picture_of_any_length() -> None:
    queue = queue_of(flight("large", 5000))
    assert names(queue.start_batch(0.0)) == ["large"]


def test_what_has_started_makes_room_in_the_queue_but_not_in_memory() -> None:
    queue = queue_of(flight("a", 290, size=600))
    queue.start_batch(0.0)
    queue.admit(flight("b", 290, size=400))
    with pytest.raises(Overloaded):
        queue.admit(flight("c", 1, size=1))


def test_tensors_beyond_the_memory_for_inputs_are_too_large() -> None:
    with pytest.raises(TooLarge, match="inflight_bytes"):
        queue_of(flight("a", size=1001))


def test_a_key_under_way_is_found_and_not_admitted_twice() -> None:
    first = flight("a")
    queue = queue_of(first)
    assert queue.find(b"a") is first
    queue.start_batch(0.0)
    with pytest.raises(ValueError, match="join"):
        queue.admit(flight("a"))
    queue.finish(first)
    assert queue.find(b"a") is None


def test_a_flight_ends_when_its_last_waiter_leaves_before_it_started() -> None:
    first = flight("a", 10, size=5)
    queue = queue_of(first, flight("b"))
    first.waiters += ["one", "two"]
    queue.leave(first, "one")
    assert queue.find(b"a") is first
    queue.leave(first, "two")
    assert queue.find(b"a") is None
    assert (queue.waiting, queue.waiting_tokens, queue.inflight_bytes) == (1, 10, 1)
    assert names(queue.start_batch(0.0)) == ["b"]


def test_a_started_flight_goes_on_without_waiters() -> None:
    first = flight("a")
    queue = queue_of(first)
    first.waiters.append("one")
    queue.start_batch(0.0)
    queue.leave(first, "one")
    assert queue.find(b"a") is first


def test_leaving_late_does_not_end_a_later_flight_of_the_same_key() -> None:
    first, second = flight("a"), flight("a")
    queue = queue_of(first)
    queue.start_batch(0.0)
    queue.finish(first)
    queue.admit(second)
    queue.leave(first, "one")
    assert queue.find(b"a") is second


def test_clear_ends_waiting_and_started_flights() -> None:
    queue = queue_of(flight("a", 100), flight("b"))
    queue.start_batch(0.0)
    assert names(queue.clear()) == ["a", "b"]
    assert (len(queue), queue.waiting, queue.inflight_bytes) == (0, 0, 0)
    queue.check_integrity()


def test_throughput_follows_the_latest_batches() -> None:
    throughput = Throughput()
    assert throughput.seconds_for(1000) == 1.0
    throughput.measured(100, 1.0)
    assert throughput.seconds_for(1000) == pytest.approx(10.0)
    throughput.measured(200, 1.0)
    assert throughput.tokens_per_second == pytest.approx(130.0)
    throughput.measured(10, 0.0)
    assert throughput.tokens_per_second == pytest.approx(130.0)
    assert throughput.seconds_for(10**9) == 60.0


@given(st.lists(st.tuples(st.integers(1, 150), st.booleans()), max_size=40))
def test_every_flight_starts_once_in_order_and_the_books_balance(
    plan: list[tuple[int, bool]],
) -> None:
    queue = queue_of(bounds=Bounds(100, 10_000, 10_000))
    started: list[str] = []
    for index, (tokens, run) in enumerate(plan):
        queue.admit(flight(str(index), tokens))
        batch = queue.start_batch(0.0) if run else []
        assert len(batch) == 1 or sum(one.tokens for one in batch) <= 100 or not batch
        started += names(batch)
        queue.check_integrity()
    while batch := queue.start_batch(0.0):
        started += names(batch)
    assert started == [str(index) for index in range(len(plan))]
