"""Answers read as far as is needed, and what is no answer of an API server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from triptych_operator.cluster.answers import Page, parsed, split
from triptych_operator.cluster.refusals import Refusal

METADATA = {
    "name": "one",
    "namespace": "n",
    "resourceVersion": "7",
    "labels": {"app": "x"},
    "ownerReferences": [{"kind": "K", "name": "o", "uid": "u", "controller": True}],
    "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
}


def page(items: Any) -> Page:
    return Page(7, json.dumps(items).encode())


def test_of_a_head_there_is_what_tells_an_object_apart_alone() -> None:
    [head] = page([{"metadata": METADATA, "spec": {"a": 1}}]).heads()
    kept = ("name", "namespace", "resourceVersion", "labels")
    owners = [{"kind": "K", "name": "o"}]
    assert head == {
        "metadata": {name: METADATA[name] for name in kept} | {"ownerReferences": owners}
    }


def test_what_an_object_does_not_have_its_head_has_not_either() -> None:
    bare = {"metadata": {"name": "one", "resourceVersion": "7"}}
    assert page([bare]).heads() == [bare]


@pytest.mark.parametrize("items", [None, []])
def test_a_page_may_be_empty(items: Any) -> None:
    assert (page(items).heads(), page(items).items()) == ([], [])


@pytest.mark.parametrize(
    "text", [b"[", b'"a"', b"[1]", b'[{"metadata":{"name":1}}]', b'[{"metadata":{"labels":[]}}]']
)
def test_heads_of_what_is_no_list_of_objects_are_refused(text: bytes) -> None:
    with pytest.raises(Refusal, match="a list: the answer is not an API server's"):
        Page(7, text).heads()


@pytest.mark.parametrize(
    "answer",
    [
        '{"kind":"List","metadata":{"resourceVersion":"7"},"items":[{"metadata":{}}]}\n',
        '{"items":[{"metadata":{}}],"kind":"List","metadata":{"resourceVersion":"7"}}\n',
    ],
)
def test_a_list_is_split_in_whichever_order_it_comes(answer: str) -> None:
    metadata, items = split(answer.encode(), "GET /x")
    assert metadata == {"resourceVersion": "7"}
    assert json.loads(items) == [{"metadata": {}}]


def test_what_is_not_json_is_refused_by_name() -> None:
    with pytest.raises(Refusal, match="GET /x: the answer is not an API server's"):
        parsed(b"<html>", "GET /x")
