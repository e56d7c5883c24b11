"""The operator, as the chart runs it and as its own account, is forbidden nothing that it does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from chart.charted_operator import ChartedOperator, account_of
from chart.conftest import DEFINITION
from cluster.control_plane import ControlPlane
from cluster.kwok import Kwok
from tools.definitions import wait_until_served
from tools.programs import CHART, Helm, Object

pytestmark = pytest.mark.usefixtures("nothing_left", "nodes")

SERVICE = """
apiVersion: triptych.dev/v1alpha1
kind: MultimodalService
metadata: {name: shapes}
spec:
  model: {source: "builtin://shapes", revision: "1", servedName: shapes}
  topology: FullSplit
  tiers:
    encoder:
      autoscaling: {min: 1, max: 3, metrics: [{signal: CPUUtilization, target: "50"}]}
      resources: {requests: {cpu: 10m}}
    decode: {replicas: 2}
"""
TO_FUSED = {"spec": {"topology": "Fused", "tiers": {"encoder": None, "decode": None}}}
SAID_SECONDS = 60.0
CHILDREN = "sa,cm,svc,netpol,pdb,deploy,hpa"


@pytest.fixture(scope="module")
def nodes(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nodes for pods, played by kwok."""
    with Kwok(control_plane, tmp_path_factory.mktemp("kwok")):
        yield


def deployment_of(helm: Helm, namespace: str) -> Object:
    manifests = yaml.safe_load_all(helm.run("get", "manifest", "triptych", "-n", namespace))
    return next(one for one in manifests if one["kind"] == "Deployment")


def wait_ready(control_plane: ControlPlane, namespace: str) -> None:
    """Until the status says of the newest generation that all pods are ready."""
    ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    mms = ("mms/shapes", f"--namespace={namespace}")
    generation = json.loads(control_plane.kubectl("get", *mms, "-o", "json"))["metadata"]
    observed = "jsonpath={.status.observedGeneration}"
    for condition in (f"{observed}={generation['generation']}", f"{ready}=True"):
        control_plane.kubectl("wait", *mms, f"--for={condition}", "--timeout=50s")


def children(control_plane: ControlPlane, namespace: str) -> set[str]:
    selector = "--selector=app.kubernetes.io/managed-by=triptych"
    names = control_plane.kubectl("get", CHILDREN, f"-n={namespace}", selector, "-o", "name")
    return set(names.split())


@pytest.mark.parametrize("mode", ["for all namespaces", "for some namespaces"])
def test_nothing_is_forbidden(
    control_plane: ControlPlane, helm: Helm, namespace: str, tmp_path: Path, mode: str
) -> None:
    served = f"{namespace}-models"
    control_plane.kubectl("create", "namespace", served)
    values = [] if mode == "for all namespaces" else [f"--set=watch.namespaces={{{served}}}"]
    helm.run("install", "triptych", CHART, f"--namespace={namespace}", *values)
    wait_until_served(control_plane, DEFINITION)
    deployment = deployment_of(helm, namespace)
    account = account_of(control_plane, deployment, tmp_path)
    since = control_plane.audit.position()
    with ChartedOperator(deployment, account, tmp_path / "operator.log") as operator:
        control_plane.kubectl("apply", "-n", served, "-f", "-", manifest=SERVICE)
        wait_ready(control_plane, served)
        made = children(control_plane, served)
        assert "horizontalpodautoscaler.autoscaling/shapes-encoder" in made
        assert len(made) == 1 + 4 * 5 + 1  # an account, five objects per tier, an autoscaler
        change = ("patch", "mms/shapes", "--type=merge", "-p", json.dumps(TO_FUSED))
        control_plane.kubectl(*change, f"--namespace={served}")
        wait_ready(control_plane, served)
        for kind in ("cm", "svc", "netpol", "pdb", "deploy", "hpa"):
            gone = ("wait", "--for=delete", f"{kind}/shapes-encoder", "--timeout=50s")
            control_plane.kubectl(*gone, f"--namespace={served}")
        lease = control_plane.kubectl("get", "lease", "-n", namespace, "-o", "name")
        assert lease == "lease.coordination.k8s.io/triptych-operator\n"
        metrics = operator.metrics()
    assert 'status="200"' in metrics
    assert 'status="403"' not in metrics
    forbidden = [line for line in operator.log().splitlines() if "orbidden" in line]
    assert forbidden == []
    tried = list(control_plane.audit.entries(since, user=account.user))
    assert [entry for entry in tried if entry.code == 403] == []
    of_the_cluster = {entry.write.resource for entry in tried if not entry.namespace}
    assert of_the_cluster == ({"apiservices"} if mode == "for all namespaces" else set())
    assert {entry.namespace for entry in tried if entry.namespace} == {namespace, served}
    assert ("create", "events") in {entry.write[:2] for entry in tried}


MISSING = {
    "rbac.create=false": 'cannot get resource "leases" in API group "coordination.k8s.io"',
    "rbac.create=false,leaderElection.enabled=false,replicas=1": (
        'cannot list resource "multimodalservices" in API group "triptych.dev"'
    ),
}


@pytest.mark.parametrize("values", MISSING)
def test_a_right_that_is_missing_is_named_in_the_log(
    control_plane: ControlPlane, helm: Helm, namespace: str, tmp_path: Path, values: str
) -> None:
    helm.run("install", "triptych", CHART, f"--namespace={namespace}", f"--set={values}")
    wait_until_served(control_plane, DEFINITION)
    deployment = deployment_of(helm, namespace)
    account = account_of(control_plane, deployment, tmp_path)
    with ChartedOperator(deployment, account, tmp_path / "operator.log") as operator:
        until_said(operator, MISSING[values])


def test_a_definition_that_is_missing_is_asked_for_and_then_work_begins(
    control_plane: ControlPlane, helm: Helm, namespace: str, tmp_path: Path
) -> None:
    without = "--set=crds.install=false"
    helm.run("install", "triptych", CHART, f"--namespace={namespace}", without)
    deployment = deployment_of(helm, namespace)
    account = account_of(control_plane, deployment, tmp_path)
    with ChartedOperator(deployment, account, tmp_path / "operator.log") as operator:
        until_said(operator, "install the resource definition: kubectl apply -f crds/")
        control_plane.kubectl("apply", "-f", str(CHART.parents[1] / "crds"))
        wait_until_served(control_plane, DEFINITION)
        control_plane.kubectl("apply", "-n", namespace, "-f", "-", manifest=SERVICE)
        wait_ready(control_plane, namespace)


def until_said(operator: ChartedOperator, words: str) -> None:
    """Waits until the operator has logged ``words``."""
    deadline = time.monotonic() + SAID_SECONDS
    while words not in operator.log():
        assert time.monotonic() < deadline, operator.log()
        time.sleep(0.2)
