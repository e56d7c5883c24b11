"""The run on the node is foretold to go well: a plan that cannot work needs no node to fail."""

from __future__ import annotations

import pytest
from triptych_contract.names import Tier

from bench.autoscaling import live
from bench.autoscaling.verdict import problems


@pytest.mark.parametrize("plan", [live.Plan(), live.Plan(load_seconds=30.0, quiet_seconds=50.0)])
def test_each_load_is_foretold_to_grow_its_own_pool(plan: live.Plan) -> None:
    lines = live.expected(plan)
    assert problems(lines) == []
    assert [line.stretch.grows for line in lines if line.stretch.grows] == list(live.TIERS)


def test_a_load_too_small_for_its_target_is_foretold_to_grow_nothing() -> None:
    lines = live.expected(live.Plan(load_seconds=4.0, quiet_seconds=60.0))
    assert "long prompts: prefill does not grow" in problems(lines)
    assert all(set(line.most) == {Tier.ENCODER, Tier.PREFILL, Tier.DECODE} for line in lines)
