"""Bounds of autoscalers: of the resource, of the balance between tiers, of a drain."""

from typing import Any

import pytest
from mms_builders import service
from triptych_contract.names import Tier
from triptych_operator.api.service import MultimodalService
from triptych_operator.desired.difference import sealed
from triptych_operator.desired.platform import Platform
from triptych_operator.desired.state import desired_state
from triptych_operator.observed.snapshot import Pod, Snapshot, TierSnapshot
from triptych_operator.scaling.bounds import Bounds, bounds, within_bounds

SCALED: dict[str, Any] = {"min": 2, "max": 20}


def tier(name: Tier, desired: int, *, going: int = 0) -> TierSnapshot:
    pods = tuple(Pod(f"{name}-{one}", "1", terminating=True) for one in range(going))
    return TierSnapshot(name, present=True, desired=desired, pods=pods)


def balanced(**balance: Any) -> MultimodalService:
    return service(
        tiers__encoder__autoscaling=SCALED, tiers__prefill__autoscaling=SCALED, balance=balance
    )


def found(resource: MultimodalService, of: Tier, *tiers: TierSnapshot) -> tuple[int, int]:
    given = resource.spec.tier(of).autoscaling
    assert given is not None
    made = bounds(resource.spec, of, given, Snapshot(tiers))
    return made.fewest, made.most


@pytest.mark.parametrize(
    ("prefills", "encoders", "expected"),
    [
        (1, 2, (2, 2)),  # the resource's own min holds
        (4, 2, (2, 8)),
        (6, 2, (3, 12)),
        (7, 2, (4, 14)),  # half of seven, rounded up
        (90, 2, (20, 20)),  # the resource's own max holds
        (4, 11, (2, 11)),  # what stands is not taken away, and does not grow
        (4, 30, (2, 20)),
    ],
)
def test_encoders_follow_prefills(prefills: int, encoders: int, expected: tuple[int, int]) -> None:
    resource = balanced(encoderPerPrefill={"min": "500m", "max": 2})
    standing = tier(Tier.PREFILL, prefills), tier(Tier.ENCODER, encoders)
    assert found(resource, Tier.ENCODER, *standing) == expected


def test_prefills_follow_decodes_and_each_bound_may_be_left_out() -> None:
    decodes = tier(Tier.DECODE, 5)
    assert found(balanced(prefillPerDecode={"max": 1}), Tier.PREFILL, decodes) == (2, 5)
    assert found(balanced(prefillPerDecode={"min": 1}), Tier.PREFILL, decodes) == (5, 20)
    assert found(balanced(), Tier.PREFILL, decodes) == (2, 20)


def test_in_encode_split_encoders_follow_the_fused_tier() -> None:
    resource = service(
        topology="EncodeSplit",
        tiers__encoder__autoscaling=SCALED,
        balance={"encoderPerPrefill": {"min": 1}},
    )
    assert found(resource, Tier.ENCODER, tier(Tier.FUSED, 7)) == (7, 20)


def test_a_leader_that_does_not_stand_yet_counts_as_it_will_begin() -> None:
    resource = service(
        tiers__encoder__autoscaling=SCALED,
        tiers__prefill__replicas=6,
        balance={"encoderPerPrefill": {"min": 1}},
    )
    assert found(resource, Tier.ENCODER) == (6, 20)


def test_a_leader_that_shrinks_counts_until_its_pods_are_gone() -> None:
    resource = balanced(encoderPerPrefill={"min": 1})
    assert found(resource, Tier.ENCODER, tier(Tier.PREFILL, 3, going=2)) == (5, 20)
    assert found(resource, Tier.ENCODER, tier(Tier.PREFILL, 3)) == (3, 20)


def test_a_tier_that_drains_does_not_shrink_further_but_may_grow() -> None:
    resource = balanced()
    assert found(resource, Tier.ENCODER, tier(Tier.ENCODER, 6, going=1)) == (6, 20)
    assert found(resource, Tier.ENCODER, tier(Tier.ENCODER, 30, going=1)) == (20, 20)
    assert found(resource, Tier.ENCODER, tier(Tier.ENCODER, 0, going=1)) == (2, 20)


def test_manifests_change_by_the_bounds_of_their_autoscalers_alone() -> None:
    resource = balanced(encoderPerPrefill={"min": 1})
    manifests = [sealed(one) for one in desired_state(resource, Platform("worker:1"))]
    assert within_bounds(manifests, resource.spec, Snapshot()) == manifests
    moved = within_bounds(manifests, resource.spec, Snapshot((tier(Tier.PREFILL, 9),)))
    [(before, after)] = [
        (old, new) for old, new in zip(manifests, moved, strict=True) if old != new
    ]
    changed: Any = after
    assert changed["metadata"]["name"] == "shapes-encoder"
    assert (changed["spec"]["minReplicas"], changed["spec"]["maxReplicas"]) == (9, 20)
    assert changed["metadata"]["annotations"] != before["metadata"]["annotations"], "sealed anew"
    assert Bounds(9, 20) == bounds(
        resource.spec,
        Tier.ENCODER,
        resource.spec.encoder.autoscaling,
        Snapshot((tier(Tier.PREFILL, 9),)),
    )
