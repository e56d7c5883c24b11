"""The chart's objects are what the API server and the field's checkers take, in every shape."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from chart import findings, schemas
from cluster.control_plane import ControlPlane
from tools.programs import CHART, Helm, program

SHAPES = sorted((Path(__file__).parent / "values").glob("*.yaml"))
NAMESPACE = "triptych-system"


@pytest.fixture(scope="module")
def rendered(rendering: Helm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one file of manifests, tests included, per file of values."""
    folder = tmp_path_factory.mktemp("rendered")
    for values in SHAPES:
        text = rendering.template("--values", values, namespace=NAMESPACE)
        (folder / values.name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def kubeconform(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str | Path, ...]:
    """The command, with the schemas of the API server."""
    pattern = schemas.export(control_plane, tmp_path_factory.mktemp("schemas"))
    return program("kubeconform"), "-strict", "-schema-location", pattern


@pytest.mark.parametrize("values", SHAPES, ids=lambda path: path.stem)
def test_lint_finds_nothing(rendering: Helm, values: Path) -> None:
    told = rendering.run("lint", "--strict", "--quiet", "--values", values, CHART)
    assert "[WARNING]" not in told
    assert "[ERROR]" not in told


def test_every_object_fits_the_schemas_of_the_api_server(
    kubeconform: tuple[str | Path, ...], rendered: Path
) -> None:
    command = [*kubeconform, "-summary", rendered]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("Invalid: 0, Errors: 0, Skipped: 0\n")


def test_the_schemas_refuse_a_field_that_nobody_knows(
    kubeconform: tuple[str | Path, ...],
) -> None:
    wrong = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: wrong}
spec: {maxUnavailabel: 1}
"""
    done = subprocess.run(kubeconform, check=False, capture_output=True, text=True, input=wrong)
    assert done.returncode == 1
    assert "additional properties 'maxUnavailabel' not allowed" in done.stdout


def test_checkov_finds_nothing_but_what_is_exempt(rendered: Path) -> None:
    judge(findings.checkov(rendered), "checkov")


def test_kube_score_finds_nothing_but_what_is_exempt(rendered: Path) -> None:
    judge(
        [found for file in rendered.iterdir() for found in findings.kube_score([file])],
        "kube-score",
    )


def judge(found: list[findings.Finding], tool: str) -> None:
    exempt = findings.exemptions(tool)
    left = [one for one in found if not any(exemption.covers(one) for exemption in exempt)]
    assert left == []
    stale = [one.check for one in exempt if not any(one.covers(finding) for finding in found)]
    assert stale == [], "exemptions that nothing needs any more"


@pytest.mark.parametrize("values", SHAPES, ids=lambda path: path.stem)
def test_the_api_server_takes_every_object(
    control_plane: ControlPlane, rendering: Helm, namespace: str, values: Path
) -> None:
    for name in yaml.safe_load(values.read_text()).get("watch", {}).get("namespaces", ()):
        labelled = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        control_plane.kubectl("apply", "-f", "-", manifest=yaml.safe_dump(labelled))
    objects = rendering.objects("--values", values, namespace=namespace)
    told = control_plane.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-",
        manifest=yaml.safe_dump_all(objects),
    )  # fmt: skip
    assert told.count("serverside-applied") == len(objects)
