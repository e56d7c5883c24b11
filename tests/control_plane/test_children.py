"""Children that were made alike compare equal; others differ, in words. Pure."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from cluster.children import comparable, difference


def deployment(uid: str, replicas: int = 1) -> dict[str, Any]:
    fields = {
        "f:metadata": {"f:ownerReferences": {f'k:{{"uid":"{uid}"}}': {}}},
        "f:spec": {"f:replicas": {}},
    }
    return {
        "metadata": {
            "name": "shapes-decode",
            "uid": f"child-of-{uid}",
            "resourceVersion": uid,
            "annotations": {"deployment.kubernetes.io/revision": uid, "kept": "yes"},
            "ownerReferences": [{"kind": "MultimodalService", "uid": uid}],
            "managedFields": [
                {"manager": "triptych", "operation": "Apply", "fieldsV1": fields},
                {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {}},
            ],
        },
        "spec": {"replicas": replicas, "clusterIP": f"10.0.0.{uid}"},
        "status": {"readyReplicas": uid},
    }


def test_identity_history_and_status_make_no_difference() -> None:
    assert comparable(deployment("1")) == comparable(deployment("2"))


def test_values_annotations_and_ownership_do() -> None:
    standing = comparable(deployment("1"))
    noted = deployment("1")
    noted["metadata"]["annotations"]["kept"] = "no"
    let_go = deepcopy(deployment("1"))
    del let_go["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
    for other in (deployment("1", replicas=2), noted, let_go):
        assert comparable(other) != standing


def test_differences_are_told_by_place() -> None:
    key, other = ("Deployment", "shapes-decode"), ("Service", "shapes-decode")
    wanted = {key: comparable(deployment("1")), other: {}}
    found = {key: comparable(deployment("1", replicas=2)), ("Service", "old"): {}}
    assert difference(found, wanted) == [
        "Service shapes-decode is missing",
        "Service old is left over",
        "Deployment shapes-decode.spec.replicas is 2, not 1",
    ]
    assert difference(wanted, wanted) == []
