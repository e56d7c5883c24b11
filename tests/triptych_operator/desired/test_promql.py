"""Queries of Prometheus: read by a parser of the language, and by the names that they ask for."""

import re

import promql_parser
import pytest
from triptych_contract.names import Metric, Tier
from triptych_operator.api.autoscaling import MEASURED, Signal
from triptych_operator.desired.promql import demand, query

EVERY = [(tier, signal) for tier in Tier for signal in MEASURED[tier]]
OWN = {value for name, value in vars(Metric).items() if not name.startswith("_")}
SHAPES = ('namespace="n"', 'triptych_service="shapes"')


@pytest.mark.parametrize(("tier", "signal"), EVERY)
def test_every_signal_is_a_query_for_one_series_per_resource(tier: Tier, signal: Signal) -> None:
    promql_parser.parse(query(tier, signal))
    asked = query(tier, signal, *SHAPES)
    promql_parser.parse(asked)
    selectors = re.findall(r"(triptych_\w+)\{([^}]*)\}", asked)
    assert selectors
    for name, matchers in selectors:
        assert re.sub("_(sum|count)$", "", name) in OWN, name
        assert all(one in matchers for one in SHAPES), matchers
        assert re.search(r'triptych_tier="\w+"', matchers)
    assert asked.count("by (namespace, triptych_service") == asked.count("by (")


def test_what_gateways_measure_is_asked_of_them() -> None:
    asked = query(Tier.ENCODER, Signal.TIME_TO_FIRST_TOKEN)
    assert 'triptych_tier="gateway"' in asked
    assert 'modality="multimodal"' in asked
    assert "modality" not in query(Tier.PREFILL, Signal.TIME_TO_FIRST_TOKEN)
    assert 'triptych_tier="encoder"' in query(Tier.ENCODER, Signal.QUEUE_WAIT)


def test_a_mean_of_nothing_is_nothing_to_wait_for() -> None:
    asked = query(Tier.DECODE, Signal.TIME_PER_OUTPUT_TOKEN)
    assert re.fullmatch(r"\(sum.* / \(sum.* > 0\) or 0 \* sum.*\)", asked)


def test_a_fused_tier_is_as_busy_as_both_its_stages_and_waits_as_long_as_the_longer() -> None:
    assert 'stage=~"encode|prefill"' in query(Tier.FUSED, Signal.STAGE_UTILIZATION)
    waits = query(Tier.FUSED, Signal.QUEUE_WAIT)
    assert waits.startswith("max by (namespace, triptych_service) (")
    assert 'stage=~"encode_queue|prefill_queue"' in waits


def test_demand_is_of_requests_that_came_and_of_those_that_wait() -> None:
    asked = demand(*SHAPES)
    promql_parser.parse(asked)
    assert Metric.WITHOUT_ENCODER in asked
    assert Metric.TTFT_SECONDS in asked


def test_what_a_tier_does_not_measure_is_no_query() -> None:
    with pytest.raises(KeyError):
        query(Tier.DECODE, Signal.QUEUE_WAIT)
