from dataclasses import replace

import pytest
from triptych_contract.names import Tier
from triptych_operator.observed.snapshot import Pod, TierSnapshot
from triptych_operator.rollout.completeness import can_take_over, is_complete

D, G = Tier.DECODE, Tier.GATEWAY
COMPLETE = TierSnapshot(D, True, 1, "r", "", (Pod("a", "r", ready=True),), rolled_out=True)


@pytest.mark.parametrize(
    ("tier", "complete"),
    [
        (COMPLETE, True),
        (replace(COMPLETE, pods=(*COMPLETE.pods, Pod("b", "old", terminating=True))), True),
        (TierSnapshot(D), False),
        (replace(COMPLETE, desired=2), False),
        (replace(COMPLETE, desired=0, pods=()), False),
        (replace(COMPLETE, desired=0, pods=(), may_rest=True), True),
        (replace(COMPLETE, desired=0, may_rest=True), False),  # one too many
        (replace(COMPLETE, revision="old"), False),
        (replace(COMPLETE, rolled_out=False), False),  # its pods may be those of a namesake
        (replace(COMPLETE, pods=(Pod("a", "r"),)), False),
        (replace(COMPLETE, pods=(Pod("a", "old", ready=True),)), False),
        (replace(COMPLETE, pods=(*COMPLETE.pods, Pod("b", "r"))), False),
    ],
)
def test_a_tier_is_complete_with_all_pods_ready_and_none_too_many(
    tier: TierSnapshot, complete: bool
) -> None:
    assert is_complete(tier, "r") is complete


def test_encoders_that_rest_hold_up_no_new_version() -> None:
    resting = TierSnapshot(Tier.ENCODER, True, 0, "new", may_rest=True)
    assert can_take_over(resting, "new", 100)
    assert not can_take_over(resting, "newer", 100)
    assert not can_take_over(replace(resting, may_rest=False), "new", 100)


RUNNING = (Pod("a", "new", running=True), Pod("b", "new", running=True))
OLD = (Pod("c", "old", running=True, ready=True), Pod("d", "old", running=True, ready=True))


@pytest.mark.parametrize(
    ("pods", "surge", "enough"),
    [
        ((*RUNNING, *OLD), 100, True),
        ((*RUNNING[:1], *OLD), 100, False),
        ((*RUNNING[:1], *OLD), 50, True),
        (RUNNING[:1], 50, False),  # without old ones there is nothing to come up beside
        (RUNNING, 50, True),
        ((Pod("a", "new"), Pod("b", "new", running=True), *OLD), 100, False),
        ((replace(RUNNING[0], terminating=True), RUNNING[1], *OLD), 100, False),
    ],
)
def test_workers_take_over_when_enough_new_ones_run(
    pods: tuple[Pod, ...], surge: int, enough: bool
) -> None:
    assert can_take_over(TierSnapshot(D, True, 2, "new", "", pods), "new", surge) is enough


def test_nothing_takes_over_before_the_deployment_has_the_new_revision() -> None:
    assert not can_take_over(TierSnapshot(D, True, 2, "old", "", RUNNING), "new", 100)
    assert not can_take_over(TierSnapshot(D, True, 0, "new", "", ()), "new", 100)


NEW_GATEWAY = Pod("g", "new", running=True, ready=True)


@pytest.mark.parametrize(
    ("pods", "enough"),
    [
        ((NEW_GATEWAY,), True),
        ((replace(NEW_GATEWAY, ready=False),), False),
        ((NEW_GATEWAY, Pod("h", "old", ready=True)), False),
        ((NEW_GATEWAY, Pod("h", "old", terminating=True)), False),  # it may still need old workers
    ],
)
def test_gateways_take_over_when_no_old_one_is_left(pods: tuple[Pod, ...], enough: bool) -> None:
    assert can_take_over(TierSnapshot(G, True, 1, "new", "FullSplit", pods), "new", 100) is enough
