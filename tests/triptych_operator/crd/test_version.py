from typing import Any

import pytest
from triptych_operator.crd.definition import definition, schema_stamp
from triptych_operator.crd.version import ANNOTATION, REVISION, Skew, skew, stamp, stamped

OWN = "7-0123456789ab"


def published(description: str | None) -> dict[str, Any]:
    schema = {} if description is None else {"description": description}
    return {"components": {"schemas": {"dev.triptych.v1alpha1.MultimodalService": schema}}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (published(stamped("A model.", OWN)), Skew.SAME),
        (published(stamped("Other words.", OWN)), Skew.SAME),
        (published(stamped("A model.", "6-0123456789ab")), Skew.OLDER),
        (published(stamped("A model.", "8-0123456789ab")), Skew.NEWER_OR_OTHER),
        (published(stamped("A model.", "10-0123456789ab")), Skew.NEWER_OR_OTHER),
        (published(stamped("A model.", "7-ffffffffffff")), Skew.NEWER_OR_OTHER),
        (published("A model."), Skew.OLDER),
        (published(None), Skew.OLDER),
        ({}, Skew.OLDER),
    ],
)
def test_a_clusters_schema_is_ours_or_older_or_another(
    document: dict[str, Any], expected: Skew
) -> None:
    assert skew(document, OWN) is expected


def test_prose_makes_no_other_schema_and_everything_else_does() -> None:
    def schema(**changes: object) -> Any:
        rule = {"rule": "self > 0", "message": "above 0"}
        size = {"description": "How large.", "type": "integer", "x-kubernetes-validations": [rule]}
        return {"description": "A thing.", "properties": {"size": size | changes}}

    same = stamp(schema())
    assert stamp(schema(description="Its size.")) == same
    other_words = {"rule": "self > 0", "message": "must be above 0"}
    assert stamp(schema(**{"x-kubernetes-validations": [other_words]})) == same
    others = [
        schema(type="string"),
        schema(maximum=1),
        schema(**{"x-kubernetes-validations": [{"rule": "self > 1", "message": "above 0"}]}),
        {"properties": schema()["properties"] | {"description": {"type": "string"}}},
    ]
    assert same not in {stamp(other) for other in others}
    assert len({stamp(other) for other in others}) == len(others)


def test_the_definition_carries_its_stamp_where_it_is_published_and_as_an_annotation() -> None:
    made: Any = definition()
    [version] = made["spec"]["versions"]
    assert made["metadata"]["annotations"] == {ANNOTATION: schema_stamp()}
    assert schema_stamp().startswith(f"{REVISION}-")
    described = version["schema"]["openAPIV3Schema"]["description"]
    assert skew(published(described), schema_stamp()) is Skew.SAME
