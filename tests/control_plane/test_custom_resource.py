"""A real API server takes the resource definition and judges resources by it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.control_plane import ControlPlane

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),  # the first build of Kubernetes takes minutes
    pytest.mark.skipif(shutil.which("go") is None, reason="needs Go to build Kubernetes"),
]


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as running:
        running.kubectl("apply", "-f", str(ROOT / "crds"))
        running.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield running


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_accepted(control_plane: ControlPlane, example: Path) -> None:
    assert "created" in control_plane.kubectl("apply", "-f", str(example))


def test_a_tier_of_another_topology_is_refused_by_the_server(control_plane: ControlPlane) -> None:
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
        control_plane.kubectl("apply", "-f", "-", manifest=manifest)
    assert "topology Fused has the tiers fused, gateway" in refused.value.stderr


def test_explain_teaches_what_a_tier_is(control_plane: ControlPlane) -> None:
    text = control_plane.kubectl("explain", "mms.spec.tiers.encoder")
    assert "Turns pictures into embeddings" in text
