from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_contract.names import Tier
from triptych_operator.scaling.limiting import limiting_tier

E, P, D = Tier.ENCODER, Tier.PREFILL, Tier.DECODE


@pytest.mark.parametrize(
    ("pressures", "previous", "expected"),
    [
        ({E: 1.0, P: 0.9, D: 1.09}, None, None),
        ({E: 1.1, P: 0.9, D: 1.2}, None, D),
        ({E: 1.0, P: 0.1}, E, E),  # it was, and is near its target still
        ({E: 0.89, P: 0.1}, E, None),
        ({E: 0.89, P: 1.2}, E, P),
        ({E: 1.0, P: 1.2}, E, E),  # not enough to take over
        ({E: 1.0, P: 1.25}, E, P),
        ({E: 2.0, P: 2.4}, E, E),
        ({P: 0.2}, E, None),  # a tier that is not there any more
        ({}, E, None),
        ({}, None, None),
    ],
)
def test_the_tier_that_is_furthest_above_its_targets_limits_and_keeps_to_it(
    pressures: dict[Tier, float], previous: Tier | None, expected: Tier | None
) -> None:
    assert limiting_tier(pressures, previous) is expected


@given(st.lists(st.sampled_from([0.95, 1.0, 1.05, 1.1, 1.15, 1.18]), min_size=4, max_size=4))
def test_noise_about_the_target_does_not_move_it(noise: list[float]) -> None:
    seen = [limiting_tier({E: 1.2, P: 1.0}, None)]
    for value in noise:
        seen.append(limiting_tier({E: value, P: 1.18 * 0.95 / value}, seen[-1]))
    assert all(one is other for one, other in pairwise(seen))
