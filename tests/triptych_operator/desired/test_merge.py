from copy import deepcopy
from typing import Any

import pytest
from triptych_operator.desired.merge import merge

CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("a field is added", {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
    ("a field is replaced", {"a": 1}, {"a": 2}, {"a": 2}),
    ("null takes a field away", {"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    ("null for what is not there changes nothing", {"a": 1}, {"b": None}, {"a": 1}),
    ("objects are merged", {"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
    ("nulls in a new object say nothing", {}, {"a": {"x": None, "y": 1}}, {"a": {"y": 1}}),
    ("an object replaces a scalar", {"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}),
    ("a list without a key is replaced", {"args": [1]}, {"args": []}, {"args": []}),
    (
        "a container is merged by its name, and stays in its place",
        {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
        {"containers": [{"name": "c"}, {"name": "a", "tty": True}]},
        {"containers": [{"name": "a", "image": "1", "tty": True}, {"name": "b"}, {"name": "c"}]},
    ),
    (
        "an environment variable is replaced inside its container",
        {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]},
        {"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}]}]},
        {"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}]}]},
    ),
    (
        "a mount is merged by where it is",
        {"volumeMounts": [{"mountPath": "/a", "name": "x"}]},
        {"volumeMounts": [{"mountPath": "/b", "name": "x"}]},
        {"volumeMounts": [{"mountPath": "/a", "name": "x"}, {"mountPath": "/b", "name": "x"}]},
    ),
    (
        "a list that is none of such items is left to the server to refuse",
        {"volumes": [{"name": "a"}]},
        {"volumes": ["oops"]},
        {"volumes": ["oops"]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("base", "patch", "merged"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_patch_is_merged_as_kubernetes_does(
    base: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]
) -> None:
    before = deepcopy((base, patch))
    assert merge(base, patch) == merged
    assert (base, patch) == before
    assert merge(merge(base, patch), patch) == merged
