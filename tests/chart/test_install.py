"""Installs, upgrades and removals of the chart on a real API server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from chart.conftest import DEFINITION
from cluster.control_plane import ControlPlane
from tools.definitions import wait_until_served
from tools.programs import CHART, Helm, HelmRefused, Object

EXAMPLE = CHART.parents[1] / "examples/shapes.yaml"


pytestmark = pytest.mark.usefixtures("nothing_left")


def read(control_plane: ControlPlane, *arguments: str) -> Object:
    found: Object = json.loads(control_plane.kubectl("get", "--output=json", *arguments))
    return found


def install(helm: Helm, namespace: str, *arguments: str, release: str = "triptych") -> str:
    return helm.run("install", release, CHART, f"--namespace={namespace}", *arguments)


def apply_example(control_plane: ControlPlane, namespace: str) -> str:
    """Creates a MultimodalService and gives its uid."""
    wait_until_served(control_plane, DEFINITION)
    control_plane.kubectl("apply", f"--namespace={namespace}", "-f", str(EXAMPLE))
    return uid_of_example(control_plane, namespace)


def uid_of_example(control_plane: ControlPlane, namespace: str) -> str:
    uid: str = read(control_plane, "mms/shapes", f"--namespace={namespace}")["metadata"]["uid"]
    return uid


def with_older_definition(folder: Path) -> Path:
    """The chart as it may have been: its definition lacks a column and a field."""
    chart = folder / "triptych"
    shutil.copytree(CHART, chart)
    path = chart / f"files/crds/triptych.dev_{DEFINITION.partition('.')[0]}.yaml"
    definition = yaml.safe_load(path.read_text())
    version = definition["spec"]["versions"][0]
    version["additionalPrinterColumns"].pop(0)
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["degraded"]
    spec.pop("x-kubernetes-validations", None)  # they speak of what is gone
    path.write_text(yaml.safe_dump(definition))
    return chart


def test_what_was_installed_is_said_and_the_next_command_works(
    control_plane: ControlPlane, helm: Helm, namespace: str
) -> None:
    told = install(helm, namespace)
    assert "looks after MultimodalServices in all namespaces" in told
    assert f"kubectl -n {namespace} rollout status deployment/triptych-operator" in told
    manifest = told.partition("<<EOF\n")[2].partition("EOF")[0]
    wait_until_served(control_plane, DEFINITION)
    answer = control_plane.kubectl("apply", "-n", namespace, "-f", "-", manifest=manifest)
    assert answer == "multimodalservice.triptych.dev/shapes created\n"


def test_an_upgrade_updates_the_definition_and_keeps_the_resources(
    control_plane: ControlPlane, helm: Helm, namespace: str, tmp_path: Path
) -> None:
    older = with_older_definition(tmp_path)
    helm.run("install", "triptych", older, f"--namespace={namespace}")
    before = read(control_plane, f"crd/{DEFINITION}")["metadata"]
    uid = apply_trimmed_example(control_plane, namespace)
    assert "READY" not in control_plane.kubectl("get", "mms", f"--namespace={namespace}")
    helm.run("upgrade", "triptych", CHART, f"--namespace={namespace}")
    after = read(control_plane, f"crd/{DEFINITION}")["metadata"]
    assert after["uid"] == before["uid"]
    assert after["generation"] > before["generation"]
    assert uid_of_example(control_plane, namespace) == uid
    assert apply_example(control_plane, namespace) == uid  # with the field that was not known
    found = read(control_plane, "mms/shapes", f"--namespace={namespace}")
    assert found["spec"]["degraded"]["onEncoderLoss"] == "RejectMultimodal"
    assert "READY" in control_plane.kubectl("get", "mms", f"--namespace={namespace}")


def apply_trimmed_example(control_plane: ControlPlane, namespace: str) -> str:
    example = yaml.safe_load(EXAMPLE.read_text())
    del example["spec"]["degraded"]
    wait_until_served(control_plane, DEFINITION)
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", manifest=yaml.safe_dump(example))
    return uid_of_example(control_plane, namespace)


def test_an_uninstall_keeps_the_definition_and_the_resources(
    control_plane: ControlPlane, helm: Helm, namespace: str
) -> None:
    install(helm, namespace)
    uid = apply_example(control_plane, namespace)
    told = helm.run("uninstall", "triptych", f"--namespace={namespace}")
    assert f"[CustomResourceDefinition] {DEFINITION}" in told
    assert uid_of_example(control_plane, namespace) == uid
    assert read(control_plane, "deployments", f"--namespace={namespace}")["items"] == []
    install(helm, namespace)  # adopts what was kept
    assert uid_of_example(control_plane, namespace) == uid


def test_another_release_takes_over_what_an_uninstalled_one_left(
    control_plane: ControlPlane, helm: Helm, namespace: str
) -> None:
    install(helm, namespace)
    uid = apply_example(control_plane, namespace)
    helm.run("uninstall", "triptych", f"--namespace={namespace}")
    with pytest.raises(HelmRefused, match=r"cannot be imported into the current release"):
        install(helm, namespace, release="vision")
    install(helm, namespace, "--take-ownership", release="vision")
    owner = read(control_plane, f"crd/{DEFINITION}")["metadata"]["annotations"]
    assert owner["meta.helm.sh/release-name"] == "vision"
    assert uid_of_example(control_plane, namespace) == uid


def test_switching_the_definition_off_in_an_upgrade_keeps_it(
    control_plane: ControlPlane, helm: Helm, namespace: str
) -> None:
    install(helm, namespace)
    uid = apply_example(control_plane, namespace)
    told = helm.run("upgrade", "triptych", CHART, "-n", namespace, "--set=crds.install=false")
    assert "something else must install and update" in told
    assert uid_of_example(control_plane, namespace) == uid


def test_a_second_release_for_all_namespaces_is_refused(
    control_plane: ControlPlane, helm: Helm, namespace: str
) -> None:
    install(helm, namespace)
    control_plane.kubectl("create", "namespace", f"{namespace}-second")
    for values in ("", "--set=crds.install=false", f"--set=watch.namespaces={{{namespace}}}"):
        with pytest.raises(HelmRefused) as refused:
            install(helm, f"{namespace}-second", *filter(None, [values]), release="second")
        assert (
            "a Triptych operator already looks after all namespaces, release triptych in "
            f"namespace {namespace}: upgrade that one (helm upgrade triptych ... -n {namespace})"
        ) in str(refused.value)
    assert read(control_plane, "all", f"--namespace={namespace}-second")["items"] == []
    control_plane.kubectl("delete", "namespace", f"{namespace}-second", "--wait=false")


def test_a_second_release_in_the_same_namespace_is_refused(
    control_plane: ControlPlane, helm: Helm, namespace: str
) -> None:
    install(helm, namespace, f"--set=watch.namespaces={{{namespace}}}")
    with pytest.raises(HelmRefused, match="already has a Triptych operator, of release triptych"):
        install(helm, namespace, "--set=watch.namespaces={default}", release="second")


def test_releases_may_share_a_cluster_but_no_namespace(
    control_plane: ControlPlane, helm: Helm, namespace: str
) -> None:
    second = f"{namespace}-second"
    control_plane.kubectl("create", "namespace", second)
    install(helm, namespace, f"--set=watch.namespaces={{{namespace}}}")
    theirs = f"--set=watch.namespaces={{{second}}}"
    with pytest.raises(HelmRefused, match=r"which updates it: add --set crds\.install=false"):
        install(helm, second, theirs)
    install(helm, second, theirs, "--set=crds.install=false")
    both = f"--set=watch.namespaces={{{second},{namespace}}}"
    with pytest.raises(HelmRefused, match=f"already looks after namespace {namespace}, release"):
        helm.run("upgrade", "triptych", CHART, "-n", second, both, "--set=crds.install=false")
    helm.run("uninstall", "triptych", "-n", second)
    control_plane.kubectl("delete", "namespace", second, "--wait=false")


def test_helm_takes_over_what_kustomize_installed(control_plane: ControlPlane, helm: Helm) -> None:
    deploy, system = str(CHART.parents[1] / "deploy"), "triptych-system"
    control_plane.kubectl("apply", "--server-side", "-k", deploy)
    try:
        uid = apply_example(control_plane, system)
        with pytest.raises(HelmRefused, match="cannot be imported into the current release"):
            install(helm, system)
        install(helm, system, "--take-ownership", "--force-conflicts")
        labels = read(control_plane, f"crd/{DEFINITION}")["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert uid_of_example(control_plane, system) == uid
        helm.run("uninstall", "triptych", f"--namespace={system}")
    finally:  # waits until it is gone: others make it anew
        control_plane.kubectl("delete", "-k", deploy, "--ignore-not-found")
