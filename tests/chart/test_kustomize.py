"""``kubectl apply -k`` gives the same objects as the chart."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from cluster.control_plane import build
from tools.programs import CHART, Helm, Object

DEPLOY = CHART.parents[1] / "deploy"
NAMESPACE = "triptych-system"
VARIANTS = {
    "cluster-wide": [],
    "namespaced": [f"--set=watch.namespaces={{{NAMESPACE}}}"],
}


def kustomized(folder: str | Path) -> list[Object]:
    done = subprocess.run(
        [build() / "kubectl", "kustomize", DEPLOY / folder],
        check=True,
        capture_output=True,
        text=True,
    )
    return list(yaml.safe_load_all(done.stdout))


def by_identity(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    return {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one
        for one in objects
    }


def unmanaged(manifest: Object) -> Object:
    """The object without what says who manages it: Helm's chart label and policy, kustomize."""
    template = manifest.get("spec", {}).get("template", {})
    for metadata in (manifest["metadata"], template.get("metadata", {})):
        for name in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
            metadata.get("labels", {}).pop(name, None)
    annotations = manifest["metadata"].pop("annotations", {})
    annotations.pop("helm.sh/resource-policy", None)
    if annotations:
        manifest["metadata"]["annotations"] = annotations
    return manifest


@pytest.mark.parametrize("variant", VARIANTS)
def test_kustomize_gives_the_objects_of_the_chart(rendering: Helm, variant: str) -> None:
    objects = kustomized("crd") + kustomized(variant)
    charted = rendering.objects(*VARIANTS[variant])
    ours = by_identity([unmanaged(one) for one in objects])
    theirs = by_identity([unmanaged(one) for one in charted])
    assert len(ours) == len(objects)
    assert ours == theirs, "run 'make generate generate-deploy' and commit"


def test_the_whole_is_the_namespace_the_definition_and_the_operator() -> None:
    whole = by_identity(kustomized("."))
    parts = by_identity(kustomized("crd") + kustomized("cluster-wide"))
    namespace = ("Namespace", "", NAMESPACE)
    assert whole.keys() == parts.keys() | {namespace}
    labels = whole[namespace]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_removing_the_operator_keeps_the_definition_and_its_namespace() -> None:
    for variant in VARIANTS:
        kinds = {one["kind"] for one in kustomized(variant)}
        assert kinds.isdisjoint({"CustomResourceDefinition", "Namespace"})


def test_the_page_names_images_in_a_way_that_works(tmp_path: Path) -> None:
    page = (DEPLOY.parent / "docs/install.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?kind: Kustomization.*?)```", page, re.DOTALL)
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    overlay = yaml.safe_load(text) | {"resources": ["deploy"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    (deployment,) = [one for one in kustomized(tmp_path) if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/triptych-operator:0.1.0"
    (image,) = [one for one in container["command"] if one.startswith("--image=")]
    assert image == "--image=registry.example.com/triptych-worker:0.1.0"
