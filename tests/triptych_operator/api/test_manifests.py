from pathlib import Path

import pytest
import yaml
from mms_builders import manifest
from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Tier, Topology
from triptych_operator.api.manifests import parse_service, read_service

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_a_valid_resource(path: Path) -> None:
    assert read_service(path).spec.model.source == "builtin://shapes"


def test_the_shapes_example_splits_all_three_stages() -> None:
    spec = read_service(EXAMPLES / "shapes.yaml").spec
    assert spec.topology is Topology.FULL_SPLIT
    pods = {tier: spec.tier(tier).initial_replicas for tier in spec.topology.tiers}
    assert pods == {Tier.ENCODER: 2, Tier.PREFILL: 1, Tier.DECODE: 2, Tier.GATEWAY: 1}


def test_json_is_a_manifest_too() -> None:
    assert parse_service('{"apiVersion": "triptych.dev/v1alpha1", "kind": "MultimodalService", '
        '"metadata": {"name": "a"}, "spec": {"model": {"source": "hf://a/b", "revision": "main", '
        '"servedName": "b"}, "topology": "Fused"}}', "x").metadata.name == "a"  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x: holds 0 documents; give a file with one MultimodalService"),
        ("---\n---\n", "x: holds 0 documents"),
        ("a: 1\n---\nb: 2\n", "x: holds 2 documents"),
        ("just text", "x: not an object"),
        ("[1, 2]", "x: not an object"),
        ("a: [", "x: not YAML"),
        ("a: &x [*x]", "x: not expressible as JSON"),
        ("[1]: 2", "unhashable key"),
        ("kind: a\nkind: b\n", "the key 'kind' is given twice"),
        ("a: {b: 1, b: 2}", "the key 'b' is given twice"),
        ("!!python/object:os.system {}", "x: not YAML"),
        ("{kind: .nan}", "x: not expressible as JSON"),
        ("kind: Pod", "x: kind: Input should be 'MultimodalService'"),
        ("when: 2024-01-01", "x: when: unknown field"),
    ],
)
def test_what_is_no_manifest_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_service(text, "x")


def test_every_wrong_field_has_a_line_of_its_own() -> None:
    text = yaml.safe_dump(manifest(topology="X", model__dtype="int4", tiers__decode__replicas=-1))
    with pytest.raises(InvalidRequest) as caught:
        parse_service(text, "my.yaml")
    lines = caught.value.message.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "spec.model.dtype",
        "spec.topology",
        "spec.tiers.decode.replicas",
    ]
    assert all(line.startswith("my.yaml: ") for line in lines)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), (b"\xff\xfe\x00", "not a text file"), (b"a" * 4_000_000, "3 MiB")],
)
def test_a_file_that_cannot_be_a_manifest_is_named(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "service.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=message) as caught:
        read_service(path)
    assert str(path) in caught.value.message
