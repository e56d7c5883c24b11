from __future__ import annotations

import pytest
from control_plane.faults.answers import list_key
from control_plane.faults.calls import Call

DEPLOYMENTS = "/apis/apps/v1/namespaces/test/deployments"


@pytest.mark.parametrize(
    ("path", "plural"),
    [
        ("/api/v1/pods", "pods"),
        ("/api/v1/namespaces/test/pods", "pods"),
        ("/api/v1/namespaces/test/pods/one", "pods"),
        ("/api/v1/namespaces", "namespaces"),
        ("/api/v1/namespaces/test", "namespaces"),
        (DEPLOYMENTS, "deployments"),
        (f"{DEPLOYMENTS}/one/scale", "deployments"),
        ("/version", ""),
    ],
)
def test_the_kind_is_read_from_the_path(path: str, plural: str) -> None:
    assert Call("GET", path, {}).plural == plural


def test_a_call_reads_as_what_it_does() -> None:
    assert Call("PATCH", f"{DEPLOYMENTS}/one/scale", {}).text == "PATCH deployments/one/scale"
    assert Call("GET", "/version", {}).text == "GET /version"


def test_lists_watches_and_reads_of_one_object_are_told_apart() -> None:
    assert Call("GET", DEPLOYMENTS, {"limit": "500"}).lists
    assert not Call("GET", f"{DEPLOYMENTS}/one", {}).lists
    assert not Call("GET", DEPLOYMENTS, {"watch": "true"}).lists
    assert Call("GET", DEPLOYMENTS, {"watch": "true"}).watches


def test_pages_and_forms_of_a_list_are_lists_apart() -> None:
    plain = Call("GET", DEPLOYMENTS, {"limit": "500"}, accept="application/json")
    page = Call("GET", DEPLOYMENTS, {"limit": "500", "continue": "x"}, accept="application/json")
    table = Call("GET", DEPLOYMENTS, {"limit": "500"}, accept="application/json;as=Table")
    assert len({list_key(plain), list_key(page), list_key(table)}) == 3
