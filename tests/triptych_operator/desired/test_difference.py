"""What counts as standing as wanted: our fields with our values, others' additions left alone."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mms_builders import manifest, service
from triptych_operator.api.manifests import validate_service
from triptych_operator.desired.difference import APPLIED, covers, is_as_wanted, sealed
from triptych_operator.desired.platform import Platform
from triptych_operator.desired.state import desired_state

SCALARS = st.one_of(st.booleans(), st.integers(-9, 9), st.text("ab", max_size=2))
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4)


@given(JSON)
def test_everything_covers_itself(value: Any) -> None:
    assert covers(value, value)


@given(OBJECTS, st.sampled_from("wxyz"), JSON)
def test_fields_that_others_add_are_theirs(wanted: Any, field: str, value: Any) -> None:
    assert covers({**wanted, field: value}, wanted)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all scalars."""
    if isinstance(value, dict):
        return [one for key, item in value.items() for one in places(item, (*path, key))]
    if isinstance(value, list):
        return [one for at, item in enumerate(value) for one in places(item, (*path, at))]
    return [path]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@given(OBJECTS, st.data())
def test_any_value_that_changed_is_found(wanted: Any, data: st.DataObject) -> None:
    paths = places(wanted)
    assume(paths)
    path = data.draw(st.sampled_from(paths))
    changed = deepcopy(wanted)
    at(changed, path[:-1])[path[-1]] = "changed"
    assert not covers(changed, wanted)


@given(OBJECTS, st.data())
def test_any_field_that_went_is_found(wanted: Any, data: st.DataObject) -> None:
    paths = places(wanted)
    assume(paths)
    path = data.draw(st.sampled_from(paths))
    changed = deepcopy(wanted)
    del at(changed, path[:-1])[path[-1]]
    assert not covers(changed, wanted)


CASES: dict[str, tuple[Any, Any, bool]] = {
    "a number and its text": ("1", 1, False),
    "one and true": (True, 1, False),
    "one and one point zero": (1.0, 1, False),
    "an empty object that the server drops": (None, {}, True),
    "an empty object that others filled": ({"a": 1}, {}, True),
    "an empty object where a list stands": ([], {}, False),
    "an empty list that the server drops": (None, [], True),
    "a list that is longer": ([1, 2], [1], False),
    "a list in another order": ([2, 1], [1, 2], False),
    "a text where a list should be": ("ab", ["a", "b"], False),
    "a list where an object should be": ([], {"a": 1}, False),
    "nothing where a value should be": (None, {"a": 1}, False),
    "a field that is null": ({}, {"a": None}, True),
}


@pytest.mark.parametrize(("standing", "wanted", "covered"), CASES.values(), ids=CASES.keys())
def test_values_are_compared_strictly(standing: Any, wanted: Any, covered: bool) -> None:
    assert covers(standing, wanted) is covered


MERGED = ["containers", "env", "volumes", "ports", "ownerReferences", "imagePullSecrets"]


@pytest.mark.parametrize("field", MERGED)
def test_items_that_others_add_to_a_merged_list_are_theirs(field: str) -> None:
    ours, theirs = {"name": "a", "value": "1"}, {"name": "b"}
    assert covers({field: [theirs, {**ours, "added": 1}]}, {field: [ours]})
    assert not covers({field: [theirs]}, {field: [ours]})
    assert not covers({field: [{**ours, "value": "2"}]}, {field: [ours]})


@pytest.mark.parametrize("field", ["args", "command", "ingress", "metrics", "policyTypes"])
def test_every_other_list_is_ours_whole(field: str) -> None:
    assert not covers({field: ["a", "b"]}, {field: ["a"]})


def children(**changes: object) -> list[Any]:
    body = manifest(**changes)
    body["metadata"] |= {"uid": "u-1", "namespace": "n"}
    return desired_state(validate_service(body, "test"), Platform(image="worker:1"))


@pytest.mark.parametrize(
    "made", children(), ids=lambda one: f"{one['kind']} {one['metadata']['name']}"
)
def test_a_child_as_it_was_applied_is_as_wanted(made: Any) -> None:
    wanted = sealed(made)
    assert is_as_wanted(wanted, json.loads(json.dumps(wanted)))


@pytest.mark.parametrize(
    "made", children(), ids=lambda one: f"{one['kind']} {one['metadata']['name']}"
)
def test_any_change_of_any_value_of_a_child_is_found(made: Any) -> None:
    wanted = sealed(made)
    for path in places(wanted):
        if path[0] in ("apiVersion", "kind"):
            continue
        changed = deepcopy(wanted)
        at(changed, path[:-1])[path[-1]] = "changed"
        assert not is_as_wanted(wanted, changed), path


def test_a_child_without_our_digest_is_not_as_wanted() -> None:
    """It has every field, but may have more of ours: fields of an earlier manifest."""
    [made] = [one for one in children() if one["metadata"]["name"] == "shapes"]
    assert not is_as_wanted(sealed(made), made)
    earlier = sealed({**made, "secrets": [{"name": "x"}]})
    assert not is_as_wanted(sealed(made), earlier)


def test_a_digest_tells_manifests_apart_and_changes_nothing_else() -> None:
    [made] = [one for one in children() if one["metadata"]["name"] == "shapes"]
    wanted: Any = sealed(made)
    digest = wanted["metadata"]["annotations"].pop(APPLIED)
    assert {**wanted["metadata"], "annotations": None} == {**made["metadata"], "annotations": None}
    assert len(digest) == 32
    other: Any = sealed({**made, "automountServiceAccountToken": True})
    assert other["metadata"]["annotations"][APPLIED] != digest


@given(st.permutations(list(children()[0].items())))
def test_a_digest_does_not_depend_on_the_order_of_fields(fields: list[tuple[str, Any]]) -> None:
    assert sealed(dict(fields)) == sealed(children()[0])


def test_sealing_keeps_annotations_and_leaves_its_argument_alone() -> None:
    made: Any = {"metadata": {"name": "a", "annotations": {"x": "y"}}}
    wanted: Any = sealed(made)
    assert wanted["metadata"]["annotations"]["x"] == "y"
    assert made == {"metadata": {"name": "a", "annotations": {"x": "y"}}}


def test_a_manifest_without_metadata_cannot_be_sealed() -> None:
    with pytest.raises(TypeError):
        sealed({"metadata": "none"})


def test_a_change_of_the_spec_changes_the_digest_of_what_it_touches() -> None:
    before, after = children(), children(tiers__decode__replicas=3)
    changed = [
        f"{old['kind']} {old['metadata']['name']}"
        for old, new in zip(before, after, strict=True)
        if sealed(old) != sealed(new)
    ]
    assert "Deployment shapes-decode" in changed
    assert all(name.endswith("shapes-decode") for name in changed)
    assert service().metadata.uid == ""
