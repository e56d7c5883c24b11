from collections.abc import Mapping

import pytest
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.scaling.policy import TierPolicy
from triptych_operator.scaling.rest import Move, Quiet, demand, move
from triptych_operator.signals.board import TierSignals

NOTHING = {Signal.PICTURE_REQUESTS_PER_SECOND: 0.0, Signal.REQUESTS_WITHOUT_ENCODER: 0.0}
ACTING = TierPolicy(Tier.ENCODER, (), scaled=True, acts=True, min=2, max=4)


def heard(
    values: Mapping[Signal, float] = NOTHING,
    work: Mapping[str, float] | None = None,
    silent: int = 0,
) -> TierSignals:
    told = work if work is not None else {"a": 0.0}
    pods = len(told) + silent
    return TierSignals(Tier.ENCODER, 0.0, pods, len(told), values, told)


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        (heard(), False),
        (heard(work={}), False),  # no encoder stands
        (heard({**NOTHING, Signal.REQUESTS_WITHOUT_ENCODER: 1.0}), True),
        (heard({**NOTHING, Signal.PICTURE_REQUESTS_PER_SECOND: 0.1}), True),
        (heard({**NOTHING, Signal.BACKLOG_TOKENS: 5.0}), True),
        (heard(work={"a": 0.0, "b": 1.0}), True),  # a lease that somebody may still fetch
        (heard({}), None),  # no gateway answers
        (heard({Signal.PICTURE_REQUESTS_PER_SECOND: 0.0}), None),
        (heard(silent=1), None),  # an encoder that may be at work
    ],
)
def test_who_cannot_be_asked_may_need_an_encoder(
    signals: TierSignals, expected: bool | None
) -> None:
    assert demand(signals) is expected


def test_quiet_begins_with_the_first_look_that_hears_nothing_and_ends_with_any_doubt() -> None:
    quiet = Quiet().after(heard(), now=10.0)
    assert quiet.after(heard(), now=20.0) == Quiet(10.0)
    assert quiet.after(heard({}), now=20.0) == Quiet()
    assert quiet.after(None, now=20.0) == Quiet()
    assert quiet.after(heard(work={"a": 1.0}), now=20.0) == Quiet()


def moved(
    *,
    desired: int = 2,
    rest_after: float | None = 60.0,
    quiet: float = 0.0,
    wanted: bool = False,
    draining: bool = False,
    policy: TierPolicy = ACTING,
) -> Move:
    return move(policy, rest_after, desired=desired, draining=draining, quiet=quiet, wanted=wanted)


def test_encoders_rest_after_the_time_that_is_given_for_it() -> None:
    assert moved(quiet=59.9) is Move.NONE
    assert moved(quiet=60.0) is Move.REST
    assert moved(quiet=60.0, draining=True) is Move.NONE, "not in two steps at a time"
    assert moved(quiet=1e6, rest_after=None) is Move.NONE


def test_what_rests_wakes_for_a_picture_and_when_it_may_rest_no_more() -> None:
    assert moved(desired=0, quiet=1e6) is Move.NONE
    assert moved(desired=0, wanted=True) is Move.WAKE
    assert moved(desired=0, rest_after=None) is Move.WAKE, "min holds"


def test_advice_moves_nothing() -> None:
    advising = TierPolicy(Tier.ENCODER, (), scaled=True, min=2, max=4)
    assert moved(desired=0, wanted=True, policy=advising) is Move.NONE
    assert moved(quiet=1e6, policy=advising) is Move.NONE
