"""Three loads on real pods under the real autoscaler: each grows the pool that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from node.one_node import OneNode
from product import product

from bench.autoscaling import live
from bench.autoscaling.verdict import problems

# The signals look back half a minute, so a load of less would not have been seen.
SHORT = live.Plan(load_seconds=30.0, quiet_seconds=90.0, brief=True)

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(3600),  # the first time builds Kubernetes, Helm and the images
]


def test_each_load_grows_its_own_pool_and_quiet_brings_it_back(
    node: OneNode, tmp_path: Path
) -> None:
    with product(node, tmp_path) as installed, live.service(installed.node) as url:
        proof = live.prove(installed.node, url, SHORT)
    assert problems(proof.lines) == [], live.table(proof.lines)
