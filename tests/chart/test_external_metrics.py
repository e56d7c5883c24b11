"""The chart's part in serving signals to autoscalers: who is asked, and what stays behind."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from chart.charted_operator import ChartedOperator, account_of
from chart.conftest import DEFINITION
from cluster.control_plane import ControlPlane
from tools.definitions import wait_until_served
from tools.programs import CHART, Helm, HelmRefused, Object

pytestmark = pytest.mark.usefixtures("nothing_left")

NAME: Final = "v1beta1.external.metrics.k8s.io"
SERVED: Final = "/apis/external.metrics.k8s.io/v1beta1"
SECONDS: Final = 60.0


def api_service(control_plane: ControlPlane) -> Object:
    found: Object = json.loads(control_plane.kubectl("get", "apiservice", NAME, "-o=json"))
    return found


def wait_available(control_plane: ControlPlane) -> None:
    control_plane.kubectl(
        "wait", "--for=condition=Available", f"apiservice/{NAME}", "--timeout=50s"
    )


@pytest.fixture
def operator(
    control_plane: ControlPlane, helm: Helm, namespace: str, tmp_path: Path
) -> ChartedOperator:
    """Of a chart that is installed."""
    helm.run("install", "triptych", CHART, f"--namespace={namespace}")
    wait_until_served(control_plane, DEFINITION)
    manifests = yaml.safe_load_all(helm.run("get", "manifest", "triptych", "-n", namespace))
    deployment = next(one for one in manifests if one["kind"] == "Deployment")
    account = account_of(control_plane, deployment, tmp_path)
    return ChartedOperator(deployment, account, tmp_path / "operator.log")


def test_the_operator_makes_the_api_available_and_an_upgrade_leaves_it_so(
    control_plane: ControlPlane, helm: Helm, namespace: str, operator: ChartedOperator
) -> None:
    assert "caBundle" not in api_service(control_plane)["spec"]
    with operator:
        wait_available(control_plane)
        before = api_service(control_plane)["spec"]
        found = json.loads(control_plane.kubectl("get", "--raw", SERVED))
        assert {one["kind"] for one in found["resources"]} == {"ExternalMetricValueList"}
        helm.run("upgrade", "triptych", CHART, "-n", namespace, "--set=verbose=true")
        assert api_service(control_plane)["spec"] == before
        control_plane.kubectl("get", "--raw", SERVED)
        logged = [one for one in operator.log().splitlines() if "orbidden" in one]
        assert logged == []


def test_an_uninstall_leaves_nothing_that_holds_up_the_deletion_of_namespaces(
    control_plane: ControlPlane, helm: Helm, namespace: str, operator: ChartedOperator
) -> None:
    with operator:
        wait_available(control_plane)
    slices = ("get", "endpointslices", f"--namespace={namespace}", "-o", "name")
    assert "triptych-operator-api" in control_plane.kubectl(*slices)
    helm.run("uninstall", "triptych", "-n", namespace)
    assert control_plane.kubectl("get", "apiservice", NAME, "--ignore-not-found") == ""
    until(lambda: "triptych-operator-api" not in control_plane.kubectl(*slices))
    control_plane.kubectl("create", "namespace", f"{namespace}-next")
    control_plane.kubectl("delete", "namespace", f"{namespace}-next", f"--timeout={SECONDS:.0f}s")


def until(holds: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


FOREIGN = f"""
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: {NAME}}}
spec:
  group: external.metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {{name: adapter, namespace: monitoring, port: 443}}
"""


def test_where_another_adapter_serves_nothing_is_installed_over_it(
    control_plane: ControlPlane, helm: Helm, namespace: str
) -> None:
    control_plane.kubectl("apply", "-f", "-", manifest=FOREIGN)
    before = api_service(control_plane)
    try:
        with pytest.raises(HelmRefused) as refused:
            helm.run("install", "triptych", CHART, f"--namespace={namespace}")
        assert "are served by monitoring/adapter" in str(refused.value)
        assert "add --set autoscaling.provider=prometheus, keda or none" in str(refused.value)
        theirs = "--set=autoscaling.provider=prometheus"
        helm.run("install", "triptych", CHART, f"--namespace={namespace}", theirs)
        after = api_service(control_plane)
        assert (after["spec"], after["metadata"]["uid"]) == (
            before["spec"],
            before["metadata"]["uid"],
        )
    finally:
        control_plane.kubectl("delete", "apiservice", NAME)


def test_kubectl_does_not_take_another_adapter_s_place_either(control_plane: ControlPlane) -> None:
    theirs = ("apply", "--server-side", "--field-manager=adapter", "-f", "-")
    control_plane.kubectl(*theirs, manifest=FOREIGN)
    deploy = str(CHART.parents[1] / "deploy/cluster-wide")
    control_plane.kubectl("create", "namespace", "triptych-system")
    try:
        with pytest.raises(subprocess.CalledProcessError) as refused:
            control_plane.kubectl("apply", "--server-side", "-k", deploy)
        assert 'conflicts with "adapter"' in refused.value.stderr
        assert api_service(control_plane)["spec"]["service"]["name"] == "adapter"
    finally:
        control_plane.kubectl("delete", "-k", deploy, "--ignore-not-found")
        control_plane.kubectl("delete", "namespace", "triptych-system")  # others make it anew
