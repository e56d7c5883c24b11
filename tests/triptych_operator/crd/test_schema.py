from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, JsonValue
from triptych_operator.api.quantities import Bytes
from triptych_operator.api.rules import ApiModel, Rule
from triptych_operator.api.service import MultimodalService
from triptych_operator.api.status import ServiceStatus
from triptych_operator.crd.schema import structural_schema


class Part(ApiModel):
    """A part."""

    size: Bytes = "1Mi"
    """How large."""


class Whole(ApiModel):
    """What holds
    parts."""

    rules = (Rule("self.a > 0", "a must be above 0", lambda whole: whole.a is None or whole.a > 0),)

    a: int | None = Field(default=None, le=9)
    kind: Literal["one"] = "one"
    part: Part = Field(default_factory=Part)
    """The part that
    counts."""
    spare: Part | None = None
    more: tuple[Part, ...] = ()
    anything: JsonValue = None
    scalars: dict[str, int | str | None] = Field(default_factory=dict)
    loose: dict[str, JsonValue] = Field(default_factory=dict)


def made(field: str) -> Any:
    properties = structural_schema(Whole)["properties"]
    assert isinstance(properties, dict)
    return properties[field]


SIZE = {
    "description": "How large. Default: 1Mi.",
    "default": "1Mi",
    "pattern": "^([0-9]{1,15}|[0-9]{1,9}([kM]|[KM]i)|[0-9]{1,6}([GT]|[GT]i))$",
    "minimum": 0,
    "maximum": 999_999_999_999_999,
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
}


def test_an_object_has_its_rules_and_its_docstring_as_one_paragraph() -> None:
    schema = structural_schema(Whole)
    assert schema["description"] == "What holds parts."
    assert schema["x-kubernetes-validations"] == [
        {"rule": "self.a > 0", "message": "a must be above 0"}
    ]
    assert schema["type"] == "object"


def test_an_optional_field_is_its_type_alone() -> None:
    assert made("a") == {"maximum": 9, "type": "integer"}


def test_a_constant_is_an_enumeration_of_one() -> None:
    assert made("kind") == {"default": "one", "enum": ["one"], "type": "string"}


def test_a_nested_object_stands_in_place_with_the_description_of_its_field() -> None:
    part = made("part")
    assert part["properties"]["size"] == SIZE
    assert (part["description"], part["default"]) == ("The part that counts.", {})
    assert made("spare")["description"] == "A part."
    assert made("more")["items"]["properties"].keys() == {"size"}


def test_free_parts_are_kept_as_they_are() -> None:
    keep = {"x-kubernetes-preserve-unknown-fields": True}
    assert made("anything") == keep
    assert made("scalars") == {
        "additionalProperties": {**keep, "nullable": True},
        "type": "object",
    }
    assert made("loose") == {**keep, "type": "object"}


def test_what_no_structural_schema_can_express_is_an_error() -> None:
    class Pair(ApiModel):
        both: tuple[int, str]

    class Above(ApiModel):
        number: Annotated[int, Field(gt=0)]

    for model in (Pair, Above):
        with pytest.raises(ValueError, match="no structural schema can express"):
            structural_schema(model)


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


EVERY_NODE = [
    *nodes(structural_schema(MultimodalService), ""),
    *nodes(structural_schema(ServiceStatus), ".status"),
]


@pytest.mark.parametrize(("path", "node"), EVERY_NODE, ids=[path for path, _ in EVERY_NODE])
def test_every_place_in_the_resource_is_structural_and_teaches(
    path: str, node: dict[str, Any]
) -> None:
    assert not {"$ref", "oneOf", "allOf", "const", "title", "$defs"} & node.keys()
    free = "x-kubernetes-preserve-unknown-fields" in node or "x-kubernetes-int-or-string" in node
    assert free or "type" in node
    if path.startswith(".spec") and not path.endswith("[]"):
        assert len(node["description"]) > 10
    if node.get("type") == "array":
        assert node["maxItems"] <= 64
    if any("matches" in rule["rule"] for rule in node.get("x-kubernetes-validations", ())):
        assert "maxLength" in node or node["type"] == "object"


def test_a_default_is_told_where_there_is_one() -> None:
    at = dict(EVERY_NODE)
    assert at[".spec.media.decode.processes"]["description"].endswith("cores. Default: 2.")
    assert at[".spec.tiers.encoder.cache"]["description"].endswith("again. Default: capacity 1Gi.")
    assert at[".spec.media"]["description"].endswith("reach the encoder.")
    assert at[".spec.tiers.encoder.replicas"]["description"].count("Default:") == 1


def test_defaults_that_the_server_fills_in_are_those_of_the_models() -> None:
    at = dict(EVERY_NODE)
    assert at[".spec.tiers"]["default"] == {}
    assert "default" not in at[".spec.tiers.encoder"]
    assert at[".spec.tiers.encoder.cache"]["default"] == {"capacity": "1Gi"}
    assert at[".spec.tiers.encoder.drain.timeout"]["default"] == "60s"
