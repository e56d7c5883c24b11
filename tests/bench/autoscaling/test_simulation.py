"""A small service through a short day: nothing is lost, and all can be computed by hand."""

from __future__ import annotations

import pytest
from triptych_contract.names import Tier

from bench.autoscaling.decoders import Room
from bench.autoscaling.outcomes import Slo
from bench.autoscaling.pools import Clock, Pods
from bench.autoscaling.simulate import PICTURES, TEXT, Case, busy, fixed, fused, on, run, split
from bench.autoscaling.system import Plan, Scaling, System
from bench.autoscaling.trips import Costs, Day, Mix, Trip

HOUR = Day(3600.0, low=0.2, high=3.0, burst_every=900.0)
COSTS = Costs(encode_per_token=0.01, prefill_per_token=0.001, step=0.1, step_per_sequence=0.05)
ONE_EACH = {tier: Scaling(1, 1) for tier in (Tier.ENCODER, Tier.PREFILL, Tier.DECODE)}


def through(scaling: dict[Tier, Scaling], *trips: Trip, room: Room | None = None) -> System:
    plan = Plan("small", scaling, COSTS, room or Room(running=64, kv_tokens=32_768))
    system = System(plan)
    system.run(trips, 1000.0)
    return system


def test_a_request_alone_takes_what_its_stages_take() -> None:
    trip = Trip(10.0, visual_tokens=100, prompt_tokens=150, output_tokens=11)
    through(ONE_EACH, trip)
    assert trip.first == pytest.approx(10.0 + 1.0 + 0.15)
    assert trip.ended == pytest.approx(trip.first + 10 * 0.1)


def test_text_goes_by_encoders() -> None:
    picture = Trip(10.0, visual_tokens=1000, prompt_tokens=1000, output_tokens=2)
    text = Trip(10.0, visual_tokens=0, prompt_tokens=1000, output_tokens=2)
    through(ONE_EACH, picture, text)
    assert text.first == pytest.approx(11.0)
    assert picture.first == pytest.approx(21.0)


def test_requests_wait_for_each_other_in_order() -> None:
    trips = [Trip(5.0, 0, 1000, 2) for _ in range(3)]
    through(ONE_EACH, *trips)
    assert [trip.first for trip in trips] == pytest.approx([6.0, 7.0, 8.0])
    through({**ONE_EACH, Tier.PREFILL: Scaling(2, 2)}, *trips)
    assert [trip.first for trip in trips] == pytest.approx([6.0, 6.0, 7.0])


def test_answers_slow_each_other_down() -> None:
    trips = [Trip(5.0, 0, 1, 11), Trip(5.0, 0, 1, 11)]
    through({**ONE_EACH, Tier.PREFILL: Scaling(2, 2)}, *trips)
    assert [trip.ended for trip in trips] == pytest.approx([5.001 + 10 * 0.15] * 2)


def test_an_answer_waits_for_room() -> None:
    trips = [Trip(5.0, 0, 1, 11), Trip(5.0, 0, 1, 11)]
    through({**ONE_EACH, Tier.PREFILL: Scaling(2, 2)}, *trips, room=Room(running=1, kv_tokens=99))
    assert [trip.ended for trip in trips] == pytest.approx([6.001, 7.001])


def test_a_fused_pod_does_it_all_in_turns() -> None:
    alone = Trip(10.0, visual_tokens=100, prompt_tokens=150, output_tokens=11)
    through({Tier.FUSED: Scaling(1, 1)}, alone)
    assert alone.first == pytest.approx(11.15)
    assert alone.ended == pytest.approx(alone.first + 1.0)
    # A prompt of one second in the midst of an answer: one step before it is done, none lost.
    answer, prompt = Trip(0.0, 0, 1, 101), Trip(5.0, 0, 1000, 2)
    through({Tier.FUSED: Scaling(1, 1)}, answer, prompt)
    assert prompt.first == pytest.approx(5.0 + 1.0 + 0.1)
    assert answer.ended is not None
    assert answer.ended > 0.001 + 100 * 0.1 + 1.0


def test_what_a_full_queue_refuses_has_ended() -> None:
    trips = [Trip(1.0, 0, 100_000, 2) for _ in range(4)]
    through(ONE_EACH, *trips)
    assert [trip.refused for trip in trips] == [False, False, True, True]


CASES = (
    busy("700m"),
    fused("700m"),
    split("by waiting", on(QueueWait="300m"), on(QueueWait="500m"), on(RunningRequests="8")),
    fixed("fixed", encoder=2, prefill=2, decode=2),
)


@pytest.mark.parametrize("mix", [PICTURES, TEXT], ids=lambda mix: mix.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_request_is_lost_and_the_same_seed_gives_the_same_day(case: Case, mix: Mix) -> None:
    first = run(case, mix, HOUR, most=32, seed=3)
    assert first == run(case, mix, HOUR, most=32, seed=3)
    assert first.requests > 1000
    assert first.requests != run(case, mix, HOUR, most=32, seed=4).requests


def test_pods_are_paid_for_from_when_they_are_asked_for_until_they_are_given_up() -> None:
    clock = Clock()
    pods = Pods(clock, first=1, start_seconds=30.0)
    clock.run(1000.0)
    pods.scale(4)
    assert (pods.ready, pods.starting) == (1, 3)
    clock.run(1010.0)
    pods.scale(2)
    assert (pods.ready, pods.starting) == (1, 1)
    clock.run(1030.0)
    assert (pods.ready, pods.starting) == (2, 0)
    assert pods.pod_seconds == 1000.0 + 4 * 10 + 2 * 20
    assert pods.most == 4


def test_a_promise_is_of_the_first_token_and_of_the_pace() -> None:
    slo = Slo(first=2.0, per_token=0.1)
    good = Trip(0.0, 0, 10, 11, first=2.0, ended=3.0)
    late = Trip(0.0, 0, 10, 11, first=2.1, ended=3.1)
    slow = Trip(0.0, 0, 10, 11, first=1.0, ended=2.1)
    refused = Trip(0.0, 0, 10, 11, ended=0.0, refused=True)
    assert [slo.kept(trip) for trip in (good, late, slow, refused)] == [True, False, False, False]


def test_a_day_has_its_rates() -> None:
    day = Day(86_400.0, low=1.0, high=3.0, burst=2.0)
    assert day.rate(0.0, []) == pytest.approx(1.0)
    assert day.rate(43_200.0, []) == pytest.approx(3.0)
    assert day.rate(43_200.0, [43_000.0]) == pytest.approx(6.0)
    calm = Day(10_000.0, low=2.0, high=2.0, burst=1.0)
    trips = list(calm.trips(PICTURES, seed=1))
    assert len(trips) == pytest.approx(20_000, rel=0.03)
    assert sum(trip.visual_tokens > 0 for trip in trips) / len(trips) == pytest.approx(
        0.8, abs=0.02
    )
