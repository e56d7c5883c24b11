"""What a tier measured, from what its pods told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from signals.readings import histogram, history, queue
from triptych_contract.names import Metric, Stage, Tier
from triptych_operator.api.autoscaling import MEASURED, Signal
from triptych_operator.signals.history import History
from triptych_operator.signals.measures import PodTold, tier_signals
from triptych_operator.signals.page import Series

RUNNING = Series(Metric.RUNNING)
WAITING = Series(Metric.WAITING)
BACKLOG = Series(Metric.BACKLOG_TOKENS)
WITHOUT = Series(Metric.WITHOUT_ENCODER)
LEASES = Series(Metric.LEASES)
IMAGES = Series(Metric.IMAGES)
INPUT = Series(Metric.INPUT_TOKENS)
KV_USED = Series(Metric.KV_TOKENS_USED)
KV_CAPACITY = Series(Metric.KV_TOKENS_CAPACITY)


def pods(*histories: History | None, ready: bool = True) -> list[PodTold]:
    return [PodTold(f"pod-{number}", ready, told) for number, told in enumerate(histories)]


def values(
    tier: Tier, told: Sequence[PodTold], gateways: Sequence[PodTold] = ()
) -> Mapping[Signal, float]:
    return tier_signals(tier, told, gateways, at=20.0).values


IDLE = history({RUNNING: 0, BACKLOG: 0}, {RUNNING: 0, BACKLOG: 0})


def test_nobody_answering_is_no_value_and_never_zero() -> None:
    for tier in Tier:
        signals = tier_signals(tier, pods(None, None), [], at=20.0)
        assert (signals.pods, signals.answering, signals.values, signals.work) == (2, 0, {}, {})
        assert tier_signals(tier, [], [], at=20.0).values == {}


def test_pods_that_answer_and_have_nothing_to_do_are_zero() -> None:
    kv = {RUNNING: 0, BACKLOG: 0, KV_USED: 0, KV_CAPACITY: 100}
    idle = pods(history(kv, kv))
    gateways = pods(history({RUNNING: 0, WITHOUT: 0}, {RUNNING: 0, WITHOUT: 0}))
    for tier in Tier:
        assert values(tier, idle, gateways) == dict.fromkeys(MEASURED[tier], 0.0)


def test_rates_and_loads_of_pods_are_added_up() -> None:
    told = pods(
        history({IMAGES: 10, BACKLOG: 50}, {IMAGES: 30, BACKLOG: 200}),
        history({IMAGES: 5, BACKLOG: 0}, {IMAGES: 15, BACKLOG: 100}),
    )
    found = values(Tier.ENCODER, told)
    assert found[Signal.IMAGES_PER_SECOND] == 3.0
    assert found[Signal.BACKLOG_TOKENS] == 300


def test_one_answer_tells_loads_and_no_rates() -> None:
    found = values(Tier.PREFILL, pods(history({INPUT: 10, BACKLOG: 7})))
    assert found == {Signal.BACKLOG_TOKENS: 7}


def test_a_ready_pod_that_is_silent_is_taken_for_the_mean_of_the_others() -> None:
    told = pods(history({BACKLOG: 100}), history({BACKLOG: 300}), None)
    signals = tier_signals(Tier.ENCODER, told, [], at=0.0)
    assert (signals.pods, signals.answering) == (3, 2)
    assert signals.values[Signal.BACKLOG_TOKENS] == 600


def test_a_pod_that_only_starts_says_nothing_of_one_that_is_too_busy_to_answer() -> None:
    told = [
        *pods(history({BACKLOG: 100}), None),
        *pods(history({BACKLOG: 0}), ready=False),
    ]
    assert values(Tier.ENCODER, told)[Signal.BACKLOG_TOKENS] == 200


def test_a_silent_pod_that_is_not_ready_does_nothing_yet() -> None:
    told = [*pods(history({BACKLOG: 100})), *pods(None, ready=False)]
    assert values(Tier.ENCODER, told)[Signal.BACKLOG_TOKENS] == 100


def test_a_pod_that_starts_to_answer_adds_to_rates_from_its_second_answer_on() -> None:
    told = pods(history({INPUT: 0}, {INPUT: 100}), history((10.0, {INPUT: 1_000_000})))
    assert values(Tier.PREFILL, told)[Signal.INPUT_TOKENS_PER_SECOND] == 10


def test_queue_wait_is_the_mean_of_those_taken_up_in_the_window() -> None:
    told = pods(
        history(queue(Stage.ENCODE_QUEUE, 100, 10), queue(Stage.ENCODE_QUEUE, 103, 13)),
        history(queue(Stage.ENCODE_QUEUE, 0, 0), queue(Stage.ENCODE_QUEUE, 1, 1)),
    )
    assert values(Tier.ENCODER, told)[Signal.QUEUE_WAIT] == 1.0


def test_requests_that_nobody_takes_up_have_waited_at_least_the_window() -> None:
    stuck = history({WAITING: 3}, {WAITING: 8})
    quick = history(queue(Stage.PREFILL_QUEUE, 0, 0), queue(Stage.PREFILL_QUEUE, 2, 1))
    assert values(Tier.PREFILL, pods(stuck))[Signal.QUEUE_WAIT] == 10.0
    assert values(Tier.PREFILL, pods(stuck, quick))[Signal.QUEUE_WAIT] == (3 * 10 + 2) / 4


def test_requests_that_came_within_the_window_may_be_taken_up_yet() -> None:
    told = pods(history({WAITING: 0}, {WAITING: 8}))
    assert values(Tier.PREFILL, told)[Signal.QUEUE_WAIT] == 0.0


def test_a_fused_tier_waits_as_long_as_its_longest_queue() -> None:
    before = queue(Stage.ENCODE_QUEUE, 0, 0) | queue(Stage.PREFILL_QUEUE, 0, 0)
    after = queue(Stage.ENCODE_QUEUE, 8, 4) | queue(Stage.PREFILL_QUEUE, 5, 10)
    assert values(Tier.FUSED, pods(history(before, after)))[Signal.QUEUE_WAIT] == 2.0
    # Prompts wait and are taken up: no picture is stuck.
    after = queue(Stage.ENCODE_QUEUE, 0, 0) | queue(Stage.PREFILL_QUEUE, 5, 10)
    told = history(before | {WAITING: 5}, after | {WAITING: 5})
    assert values(Tier.FUSED, pods(told))[Signal.QUEUE_WAIT] == 0.5


def test_memory_is_that_of_all_pods_together() -> None:
    told = pods(
        history({KV_USED: 90, KV_CAPACITY: 100}), history({KV_USED: 0, KV_CAPACITY: 200}), None
    )
    assert values(Tier.DECODE, told)[Signal.KV_UTILIZATION] == 0.3


def test_work_that_moves_to_a_new_pod_is_not_counted_twice() -> None:
    alone = history({INPUT: 0}, {INPUT: 200}, {INPUT: 300})
    new = history((10.0, {INPUT: 0}), (20.0, {INPUT: 100}))
    assert values(Tier.PREFILL, pods(alone, new))[Signal.INPUT_TOKENS_PER_SECOND] == 20


def test_a_tier_without_memory_of_that_kind_tells_nothing_of_it() -> None:
    assert Signal.KV_UTILIZATION not in values(Tier.DECODE, pods(IDLE))


def test_time_per_output_token_is_that_of_all_tokens() -> None:
    told = pods(
        history(
            histogram(Metric.TPOT_SECONDS, "", 0, 0), histogram(Metric.TPOT_SECONDS, "", 3, 30)
        ),
        history(
            histogram(Metric.TPOT_SECONDS, "", 5, 10), histogram(Metric.TPOT_SECONDS, "", 6, 20)
        ),
    )
    assert values(Tier.DECODE, told)[Signal.TIME_PER_OUTPUT_TOKEN] == pytest.approx(0.1)


def test_a_decode_that_gives_no_token_tells_no_time_per_token() -> None:
    told = pods(history({RUNNING: 4}, {RUNNING: 4}))
    assert Signal.TIME_PER_OUTPUT_TOKEN not in values(Tier.DECODE, told)


def first_tokens(
    text: tuple[float, float], multimodal: tuple[float, float]
) -> Mapping[Series, float]:
    return {
        RUNNING: 2.0,
        **histogram(Metric.TTFT_SECONDS, "text", *text),
        **histogram(Metric.TTFT_SECONDS, "multimodal", *multimodal),
    }


def test_the_time_to_the_first_token_is_the_gateways() -> None:
    gateways = pods(history(first_tokens((0, 0), (0, 0)), first_tokens((1, 10), (12, 3))))
    expected = {Tier.ENCODER: 4.0, Tier.PREFILL: 1.0, Tier.FUSED: 1.0, Tier.GATEWAY: 1.0}
    for tier, seconds in expected.items():
        told = gateways if tier is Tier.GATEWAY else pods(IDLE)
        assert values(tier, told, gateways)[Signal.TIME_TO_FIRST_TOKEN] == seconds
    found = values(Tier.ENCODER, pods(IDLE), gateways)
    assert found[Signal.PICTURE_REQUESTS_PER_SECOND] == pytest.approx(0.3)


def test_encoders_at_rest_still_hear_of_pictures() -> None:
    gateways = pods(history(first_tokens((0, 0), (0, 0)), first_tokens((1, 10), (12, 3))))
    found = values(Tier.ENCODER, [], gateways)
    assert set(found) == {Signal.TIME_TO_FIRST_TOKEN, Signal.PICTURE_REQUESTS_PER_SECOND}


def test_requests_that_no_encoder_is_up_for_are_those_of_all_gateways() -> None:
    gateways = pods(history({WITHOUT: 2}), history({WITHOUT: 1}))
    assert values(Tier.ENCODER, [], gateways) == {Signal.REQUESTS_WITHOUT_ENCODER: 3}


def test_text_alone_leaves_encoders_without_anything_to_do() -> None:
    gateways = pods(history(first_tokens((0, 0), (0, 0)), first_tokens((1, 10), (0, 0))))
    assert values(Tier.ENCODER, pods(IDLE), gateways)[Signal.TIME_TO_FIRST_TOKEN] == 0


def test_long_answers_without_a_first_token_leave_its_time_open() -> None:
    gateways = pods(history(first_tokens((1, 1), (1, 1)), first_tokens((1, 1), (1, 1))))
    assert Signal.TIME_TO_FIRST_TOKEN not in values(Tier.PREFILL, pods(IDLE), gateways)


def test_work_of_a_pod_is_what_would_be_lost_with_it() -> None:
    told = pods(history({RUNNING: 1, WAITING: 2, LEASES: 4}), None, IDLE)
    assert tier_signals(Tier.ENCODER, told, [], at=0.0).work == {"pod-0": 7, "pod-2": 0}
