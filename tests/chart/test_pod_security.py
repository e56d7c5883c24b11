"""Pods of operator, tests and services fit a namespace that enforces the restricted standard."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from cluster.control_plane import ControlPlane
from tools.programs import CHART, Helm, Object
from triptych_operator.api.manifests import read_service
from triptych_operator.desired.platform import Platform
from triptych_operator.desired.state import desired_state

EXAMPLES = sorted((CHART.parents[1] / "examples").glob("*.yaml"))


def create(control_plane: ControlPlane, namespace: str, manifests: list[Object]) -> str:
    """Asks the server to create the pods in ``manifests``, without doing so."""
    pods = [pod for manifest in manifests for pod in pods_of(manifest)]
    assert pods
    return control_plane.kubectl(
        "create", "--dry-run=server", f"--namespace={namespace}", "-f", "-",
        manifest=yaml.safe_dump_all(pods),
    )  # fmt: skip


def pods_of(manifest: Object) -> list[Object]:
    """A pod as it is, or as a Deployment makes it; under the account that every namespace has."""
    if manifest["kind"] not in ("Pod", "Deployment"):
        return []
    template = manifest if manifest["kind"] == "Pod" else manifest["spec"]["template"]
    spec = template["spec"] | {"serviceAccountName": "default"}
    labels = template["metadata"]["labels"]
    metadata = {"generateName": f"{manifest['metadata']['name']}-", "labels": labels}
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}]


@pytest.mark.parametrize("values", ["tests.service=", "tests.service=shapes"])
def test_the_pods_of_operator_and_tests_are_restricted(
    control_plane: ControlPlane, rendering: Helm, namespace: str, values: str
) -> None:
    text = rendering.template(f"--set={values}", namespace=namespace)
    told = create(control_plane, namespace, list(yaml.safe_load_all(text)))
    assert told.count("created (server dry run)") == 2


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_pods_of_services_are_restricted(
    control_plane: ControlPlane, namespace: str, example: Path
) -> None:
    service = read_service(example)
    manifests = desired_state(service, Platform(image="triptych-worker"))
    told = create(control_plane, namespace, manifests)
    assert told.count("created (server dry run)") == len(service.spec.topology.tiers)


def test_the_namespace_refuses_other_pods(control_plane: ControlPlane, namespace: str) -> None:
    container = {"name": "plain", "image": "plain"}
    pod = {"kind": "Pod", "metadata": {"name": "plain", "labels": {}}}
    with pytest.raises(subprocess.CalledProcessError) as refused:
        create(control_plane, namespace, [pod | {"spec": {"containers": [container]}}])
    assert 'violates PodSecurity "restricted:latest"' in refused.value.stderr
