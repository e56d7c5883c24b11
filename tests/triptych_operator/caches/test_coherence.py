from dataclasses import replace

import pytest
from triptych_contract.names import Tier
from triptych_operator.api.status import CachesStatus
from triptych_operator.caches.coherence import (
    Cause,
    Finding,
    Holder,
    Outcome,
    Verdict,
    cause,
    finding,
    holders,
)
from triptych_operator.observed.snapshot import Pod, Snapshot, TierSnapshot

KEEP, OLD = "a" * 64, "b" * 64
DONE = CachesStatus(fingerprint=KEEP, epoch=1, revision="e1", flush_token="t1")


@pytest.mark.parametrize(
    ("caches", "revision", "token", "coherent", "expected"),
    [
        (CachesStatus(), "e1", "", False, Cause.FIRST),
        (DONE, "e1", "t1", True, None),
        (DONE, "e1", "", True, None),  # the annotation was taken away
        (DONE, "e2", "t1", True, Cause.ENCODER_CHANGED),
        (DONE, "e1", "t2", True, Cause.REQUESTED),
        (DONE, "e1", "t1", False, Cause.UNFINISHED),
        (DONE, "e2", "t2", False, Cause.ENCODER_CHANGED),
    ],
)
def test_a_flush_is_due_for_a_new_encoder_or_a_new_token_or_one_unfinished(
    caches: CachesStatus, revision: str, token: str, coherent: bool, expected: Cause | None
) -> None:
    assert cause(caches, revision, token, coherent=coherent) is expected


def test_holders_are_all_pods_with_caches_gateways_first() -> None:
    pods = (Pod("b", "r", address="10.0.0.2"), Pod("a", "r", address="10.0.0.1"))
    tiers = [Tier.DECODE, Tier.PREFILL, Tier.GATEWAY, Tier.ENCODER]
    seen = Snapshot(tuple(TierSnapshot(tier, True, 2, "r", "", pods) for tier in tiers))
    assert [(one.tier, one.pod) for one in holders(seen)] == [
        (tier, pod) for tier in (Tier.GATEWAY, Tier.ENCODER, Tier.PREFILL) for pod in ("b", "a")
    ]


def test_pods_that_go_or_have_no_address_are_no_holders() -> None:
    pods = (Pod("a", "r"), Pod("b", "r", address="10.0.0.2", terminating=True))
    assert holders(Snapshot((TierSnapshot(Tier.ENCODER, True, 2, "r", "", pods),))) == []


def outcome(pod: str, *held: str, problem: str = "") -> Outcome:
    return Outcome(Holder(pod, Tier.ENCODER, "10.0.0.1"), held=frozenset(held), problem=problem)


def test_caches_are_coherent_when_everybody_answered_and_holds_nothing_else() -> None:
    found = finding(KEEP, [outcome("a", KEEP), outcome("b")])
    assert found == Finding(Verdict.COHERENT, "all 2 holders hold encoder aaaaaaaaaaaa alone")
    assert found.coherent


def test_who_does_not_answer_is_named_before_who_still_holds_something() -> None:
    answers = [outcome("a", problem="Unavailable"), outcome("b", OLD, KEEP)]
    silent = finding(KEEP, answers)
    assert silent.verdict is Verdict.UNREACHABLE
    assert "a (Unavailable)" in silent.message
    assert not silent.coherent
    holding = finding(KEEP, [replace(answers[0], problem=""), answers[1]])
    assert (holding.verdict, holding.message) == (
        Verdict.HOLDS_OLD,
        "in use, to be dropped when released: held by b",
    )


def test_a_message_stays_short_however_many_there_are() -> None:
    found = finding(KEEP, [outcome(f"pod-{n}", OLD) for n in range(1000)])
    assert found.message.endswith("pod-4 and 995 more")
