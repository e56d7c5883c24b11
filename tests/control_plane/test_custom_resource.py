"""A real API server takes the resource definition and judges resources by it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cluster.kubectl import Cluster

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_accepted(cluster: Cluster, namespace: str, example: Path) -> None:
    assert "created" in cluster.kubectl("apply", "-f", str(example), f"-n={namespace}")


def test_a_tier_of_another_topology_is_refused_by_the_server(
    cluster: Cluster, namespace: str
) -> None:
    manifest = """
apiVersion: triptych.dev/v1alpha1
kind: MultimodalService
metadata: {name: wrong}
spec:
  model: {source: "builtin://shapes", revision: "1", servedName: shapes}
  topology: Fused
  tiers: {decode: {replicas: 1}}
"""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        cluster.kubectl("apply", "-f", "-", f"-n={namespace}", manifest=manifest)
    assert "topology Fused has the tiers fused, gateway" in refused.value.stderr


def test_explain_teaches_what_a_tier_is(cluster: Cluster) -> None:
    text = cluster.kubectl("explain", "mms.spec.tiers.encoder")
    assert "Turns pictures into embeddings" in text
