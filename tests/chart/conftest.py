"""What the chart's tests share: Helm, and an API server that knows nothing of Triptych yet."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.control_plane import ControlPlane
from tools.definitions import wait_until_served
from tools.programs import Helm, sources

DEFINITION = "multimodalservices.triptych.dev"
MONITORS = ("servicemonitors", "podmonitors", "prometheusrules")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is in this folder, and gives it time to build Kubernetes and Helm once."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.cluster)
        item.add_marker(pytest.mark.timeout(1800))
        if shutil.which("go") is None:
            item.add_marker(pytest.mark.skip(reason="needs Go to build Kubernetes and Helm"))


@pytest.fixture(scope="session")
def rendering(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One that has the definitions of the Prometheus operator too, and counts writes."""
    theirs = sources("prometheus-operator", "github.com/prometheus-operator/prometheus-operator")
    definitions = theirs / "example/prometheus-operator-crd"
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), audited=True) as running:
        for name in MONITORS:
            path = definitions / f"monitoring.coreos.com_{name}.yaml"
            running.kubectl("apply", "--server-side", "-f", str(path))
        wait_until_served(running, *MONITORS)
        yield running


@pytest.fixture(scope="session")
def helm(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm as the administrator of ``control_plane``."""
    return Helm(tmp_path_factory.mktemp("helm-home"), control_plane.kubeconfig)


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """The name of a namespace that takes restricted pods alone, and is this test's own."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    control_plane.kubectl("create", "namespace", name)
    control_plane.kubectl("label", "namespace", name, restricted)
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def nothing_left(control_plane: ControlPlane, helm: Helm) -> Iterator[None]:
    """Removes every release and the definition afterwards: all tests share one cluster."""
    yield
    for release in json.loads(helm.run("list", "--all-namespaces", "--output=json")):
        helm.run("uninstall", release["name"], "-n", release["namespace"])
    control_plane.kubectl("delete", "crd", DEFINITION, "--ignore-not-found")
