"""Topologies name their tiers in the order in which tiers depend on each other."""

from __future__ import annotations

from metric_docs import told
from triptych_contract.names import (
    SECONDS_BUCKETS,
    TPOT_BUCKETS,
    TTFT_BUCKETS,
    Metric,
    Tier,
    Topology,
)


def test_every_topology_ends_in_a_gateway() -> None:
    assert all(topology.tiers[-1] is Tier.GATEWAY for topology in Topology)
    assert Topology.FULL_SPLIT.tiers == (Tier.ENCODER, Tier.PREFILL, Tier.DECODE, Tier.GATEWAY)


def test_metric_names_carry_the_prefix_and_differ() -> None:
    names = [value for name, value in vars(Metric).items() if name.isupper()]
    assert len(names) == len(set(names))
    assert all(name.startswith("triptych_") for name in names)


def test_buckets_ascend() -> None:
    for buckets in (SECONDS_BUCKETS, TTFT_BUCKETS, TPOT_BUCKETS):
        assert list(buckets) == sorted(set(buckets))


def test_the_documentation_tells_of_every_metric() -> None:
    names = {value for name, value in vars(Metric).items() if name.isupper()}
    assert sorted(one.name for one in told()) == sorted(names)
