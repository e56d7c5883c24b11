from pathlib import Path

import pytest
import yaml
from mms_builders import manifest
from triptych_operator.cli import main

EXAMPLE = Path(__file__).parents[3] / "examples" / "shapes.yaml"


def written(folder: Path, **changes: object) -> str:
    path = folder / "service.yaml"
    path.write_text(yaml.safe_dump(manifest(**changes)))
    return str(path)


def test_a_valid_manifest_is_told_with_its_tiers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-f", str(EXAMPLE)]) == 0
    assert capsys.readouterr().out == (
        f"{EXAMPLE}: shapes is valid: FullSplit (encoder 2, prefill 1, decode 2, gateway 1)\n"
    )


@pytest.mark.parametrize("command", ["validate", "render"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topology": "Split"}, "spec.topology: "),
        ({"model__source": "file:///models/a"}, "spec.model: file:// is for `triptych up`"),
        (
            {"model__encoder": {"source": "file:///models/a", "revision": "1"}},
            "spec.model.encoder: file:// is for `triptych up`",
        ),
    ],
)
def test_what_a_cluster_refuses_is_refused(
    command: str,
    changes: dict[str, object],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = written(tmp_path, **changes)
    assert main([command, "-f", path]) == 1
    assert capsys.readouterr().err.startswith(f"triptych: {path}: {message}")


@pytest.mark.parametrize(
    ("given", "namespace"), [([], "triptych-system"), (["--operator-namespace", "ops"], "ops")]
)
def test_render_lets_in_the_operator_of_the_installation_unless_told_of_another(
    given: list[str], namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", "-f", str(EXAMPLE), *given]) == 0
    only = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    found = [
        peer["namespaceSelector"]
        for document in yaml.safe_load_all(capsys.readouterr().out)
        if document["kind"] == "NetworkPolicy"
        for rule in document["spec"]["ingress"]
        for peer in rule.get("from", ())
        if "namespaceSelector" in peer
    ]
    assert found == [only] * 4


def test_render_prints_every_manifest_with_the_image(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "-f", str(EXAMPLE), "--image", "worker:7"]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert len(documents) == 1 + 5 * 4
    images = {
        container["image"]
        for document in documents
        if document["kind"] == "Deployment"
        for container in document["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"worker:7"}
