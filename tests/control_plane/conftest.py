"""One control plane for all tests here: with our resource definition, and nodes that kwok plays.

TRIPTYCH_TEST_KUBECONFIG names an existing cluster to use instead. Its own nodes are best cordoned,
or pods of tests go there; tests that control the API server process itself are then skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster.control_plane import ControlPlane
from cluster.kubectl import Cluster
from cluster.kwok import Kwok
from control_plane.faults.sweep import FULL
from control_plane.pod_pages import random_network

ROOT = Path(__file__).resolve().parents[2]
DEFINITION_SECONDS = 60.0
# It takes KEDA and Prometheus themselves, which are built in twenty minutes: `make keda`.
collect_ignore = [] if FULL else ["test_keda_itself.py"]
EXISTING = os.environ.get("TRIPTYCH_TEST_KUBECONFIG", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is in this folder, and gives it time to build Kubernetes once."""
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        item.add_marker(pytest.mark.cluster)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1800))
        if shutil.which("go") is None:
            item.add_marker(pytest.mark.skip(reason="needs Go to build Kubernetes and kwok"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that knows MultimodalServices, where pods become ready (cluster.kwok says how)."""
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as running:
        made = (
            _existing() if EXISTING else running.enter_context(ControlPlane(folder, audited=True))
        )
        made.kubectl("apply", "-f", str(ROOT / "crds"))
        _wait_for_definition(made)
        running.enter_context(Kwok(made, folder))
        yield made


@pytest.fixture(scope="session")
def control_plane(cluster: Cluster) -> ControlPlane:
    """The same, for tests that count writes in its audit log, restart it, or make users."""
    if not isinstance(cluster, ControlPlane):
        pytest.skip("controls the API server process; unset TRIPTYCH_TEST_KUBECONFIG")
    return cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """The name of a namespace that only this test uses."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def network() -> str:
    """Where pods of this module have their addresses."""
    return random_network()


@pytest.fixture(scope="module")
def loopback_nodes(
    control_plane: ControlPlane, network: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The name of a kwok whose pods have addresses that answer here."""
    name = "kwok-loopback"
    folder = tmp_path_factory.mktemp(name)
    with Kwok(control_plane, folder, nodes=1, name=name, network=network, reserved=True):
        yield name


def _wait_for_definition(cluster: Cluster) -> None:
    """Until resources can be made and kubectl knows them, which is later than Established."""
    deadline = time.monotonic() + DEFINITION_SECONDS
    while True:
        try:
            cluster.kubectl("explain", "mms")
        except subprocess.CalledProcessError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the definition is not served: {error.stderr}") from error
            time.sleep(0.2)
        else:
            return


def _existing() -> Cluster:
    program = shutil.which("kubectl")
    if program is None:
        raise FileNotFoundError("TRIPTYCH_TEST_KUBECONFIG is set, but kubectl is not installed")
    return Cluster(Path(program), Path(EXISTING))
