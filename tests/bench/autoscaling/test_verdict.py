from __future__ import annotations

import pytest
from triptych_contract.names import Tier

from bench.autoscaling.load import Outcome
from bench.autoscaling.verdict import Line, Stretch, line, problems
from bench.autoscaling.watch import Reading, TierReading

PICTURES = Stretch("pictures", 100.0, 110.0, Tier.ENCODER)
QUIET = Stretch("quiet after pictures", 110.0, 120.0, None)


def at(moment: float, encoder: int, prefill: int = 1) -> Reading:
    tiers = {Tier.ENCODER: encoder, Tier.PREFILL: prefill}
    return Reading(moment, {tier: TierReading(n, n, 1.0) for tier, n in tiers.items()})


def lines(*readings: Reading, outcomes: tuple[Outcome, ...] = ()) -> list[Line]:
    return [line(one, readings, outcomes) for one in (PICTURES, QUIET)]


def test_a_load_that_grows_its_pool_alone_and_a_quiet_that_brings_it_back_are_right() -> None:
    found = lines(at(101, 1), at(103, 3), at(105, 3), at(111, 3), at(119, 1))
    assert problems(found) == []
    assert found[0].most == {Tier.ENCODER: 3, Tier.PREFILL: 1}
    assert found[0].pod_seconds == 2 * 2 + 4 * 2
    assert found[1].last == {Tier.ENCODER: 1, Tier.PREFILL: 1}


def test_every_other_course_is_told() -> None:
    lost = (Outcome("pictures", 0.0, error="503"), Outcome("pictures", 0.0, first=0.2))
    assert problems(lines(at(101, 1), at(103, 1, 2), at(112, 2), outcomes=lost)) == [
        "pictures: 1 of 2 requests failed",
        "pictures: encoder does not grow",
        "pictures: prefill grows to 2",
        "quiet after pictures: encoder stays at 2",
    ]


def test_times_are_of_the_phases_own_requests_that_were_answered() -> None:
    outcomes = (
        Outcome("pictures", 0.0, first=0.2),
        Outcome("pictures", 1.0, first=0.4),
        Outcome("pictures", 2.0, error="TimeoutError"),
        Outcome("other", 3.0, first=9.0),
    )
    found = line(PICTURES, (at(101, 1),), outcomes)
    assert (found.requests, found.failed) == (3, 1)
    assert (found.ttft_p50, found.ttft_p99) == (0.2, 0.4)


def test_a_phase_that_nobody_looked_at_is_no_phase() -> None:
    with pytest.raises(ValueError, match="nothing was read during pictures"):
        line(PICTURES, (at(90, 1),), ())
