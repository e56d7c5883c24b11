from __future__ import annotations

from triptych_contract.names import Tier

from bench.autoscaling.__main__ import HEAD, nine, row, tables
from bench.autoscaling.outcomes import Result
from bench.autoscaling.simulate import run


def test_a_line_tells_of_a_day_with_tiers_in_the_order_of_a_request() -> None:
    found = Result(
        name="split",
        requests=1000,
        refused=3,
        good=0.9,
        ttft_p50=1.234,
        ttft_p99=5.678,
        pod_hours={Tier.DECODE: 3.0, Tier.PREFILL: 2.0, Tier.ENCODER: 4.0},
        most={Tier.DECODE: 7, Tier.PREFILL: 6, Tier.ENCODER: 5},
    )
    assert row(found) == ("| split | 90.0% | 1.23 | 5.7 | 3 | 4.0 + 2.0 + 3.0 | 5 + 6 + 7 | 100 |")
    assert row(found).count("|") == HEAD.splitlines()[0].count("|")


def test_every_table_can_be_made_and_no_request_is_lost() -> None:
    for table in tables(hours=0.05):
        for case in table.cases:
            found = run(case, table.mix, table.day, table.most, seed=1)  # raises if one is
            assert row(found).startswith(f"| {case.name} | "), table.title


def test_pods_that_are_fixed_are_as_many_apart_as_fused() -> None:
    apart, fused = nine(3, 2, 4)
    assert sum((apart.pods or {}).values()) == sum((fused.pods or {}).values()) == 9
