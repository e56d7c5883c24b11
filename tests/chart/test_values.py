"""Wrong values are refused with the place and the reason, before anything is installed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml
from tools.programs import CHART, Helm, HelmRefused

ROOT = CHART.parents[1]

WRONG = {
    "replica=3": "additional properties 'replica' not allowed",
    "replicas=two": "at '/replicas': got string, want integer",
    "image.digest=latest": "at '/image/digest': 'latest' does not match",
    "image.repository=Operator": "at '/image/repository': 'Operator' does not match",
    "watch.namespaces=models": "at '/watch/namespaces': got string, want array",
    "watch.namespaces={Models}": "at '/watch/namespaces/0': 'Models' does not match",
    "watch.namespaces={a,a}": "at '/watch/namespaces': items at 0 and 1 are equal",
    "resources.limits.memory=lots": "at '/resources/limits/memory': 'lots' does not match",
    "metrics.serviceMonitor.interval=30": "at '/metrics/serviceMonitor/interval': got number",
    "networkPolicy.apiServerPorts={https}": "at '/networkPolicy/apiServerPorts/0': got string",
    "autoscaling.provider=other": "at '/autoscaling/provider': value must be one of 'embedded'",
    "autoscaling.port=443": "at '/autoscaling/port': minimum: got 443, want 1,024",
    "leaderElection.enabled=false": "set replicas to 1, or leaderElection.enabled to true",
    "serviceAccount.create=false": "serviceAccount.name: name an account that exists",
    "metrics.service.enabled=false,metrics.serviceMonitor.enabled=true": "use metrics.podMonitor",
}


@pytest.mark.parametrize("values", WRONG)
def test_wrong_values_are_refused_with_what_to_change(rendering: Helm, values: str) -> None:
    with pytest.raises(HelmRefused) as refused:
        rendering.template(f"--set={values}")
    assert WRONG[values] in str(refused.value)


def test_a_cluster_that_is_too_old_is_refused(rendering: Helm) -> None:
    with pytest.raises(HelmRefused, match=r"requires kubeVersion: >=1\.32\.0-0"):
        rendering.template("--kube-version=1.31.9")


def test_a_cluster_that_cannot_reach_the_replica_that_serves_is_refused(rendering: Helm) -> None:
    with pytest.raises(HelmRefused, match=r"add --set autoscaling\.provider=prometheus"):
        rendering.template("--kube-version=1.33.13")
    rendering.template("--kube-version=1.33.13", "--set=autoscaling.provider=none")
    rendering.template("--kube-version=1.34.0")


def test_every_value_has_a_place_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) == set(values) | {"global"}


def test_the_chart_installs_the_version_of_this_tree() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_operator_is_told_what_the_values_say(rendering: Helm, tmp_path: Path) -> None:
    values = {
        "image": {"repository": "registry.example/operator", "digest": f"sha256:{'a' * 64}"},
        "workerImage": {"repository": "registry.example/worker", "tag": "2"},
        "watch": {"namespaces": ["one", "two"]},
        "leaderElection": {"enabled": False},
        "replicas": 1,
    }
    given = tmp_path / "values.yaml"
    given.write_text(yaml.safe_dump(values))
    objects = rendering.objects("--values", given)
    deployment = next(one for one in objects if one["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"registry.example/operator@sha256:{'a' * 64}"
    assert container["command"] == [
        "triptych",
        "operator",
        "--image=registry.example/worker:2",
        "--namespace=one",
        "--namespace=two",
        "--no-election",
        "--listen=0.0.0.0:8080",
        "--metrics=none",
    ]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
