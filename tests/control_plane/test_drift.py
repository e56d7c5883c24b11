"""What people do to children by hand heals; what other controllers add to them stays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from cluster.children import COLLECTIONS, Children, children
from cluster.kubectl import Cluster
from control_plane.faults.transitions import FULL_SPLIT, NAME, Transition, service
from control_plane.faults.trial import Trial, trial

HEAL_SECONDS: Final = 30.0
TIER: Final = f"{NAME}-decode"  # which has an autoscaler
NAMES: Final = {kind: NAME if kind == "ServiceAccount" else TIER for kind in COLLECTIONS}

# A value of ours in each kind, changed by hand.
EDITS: Final[Mapping[str, Mapping[str, Any]]] = {
    "ServiceAccount": {"automountServiceAccountToken": True},
    "ConfigMap": {"data": {"config.json": "{}"}},
    "Service": {"spec": {"publishNotReadyAddresses": False}},
    "NetworkPolicy": {"spec": {"ingress": [{}]}},
    "PodDisruptionBudget": {"spec": {"maxUnavailable": 7}},
    "Deployment": {"spec": {"template": {"spec": {"serviceAccountName": "default"}}}},
    "HorizontalPodAutoscaler": {"spec": {"maxReplicas": 9}},
}
LABELS: Final = {
    "a value of the operator's mark": {"app.kubernetes.io/managed-by": "somebody"},
    "the operator's mark": {"app.kubernetes.io/managed-by": None},
    "the resource's name": {"app.kubernetes.io/instance": None},
    "the tier": {"app.kubernetes.io/component": None},
}


@pytest.fixture
async def one(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Trial]:
    """A resource that is ready, with an autoscaler of its decodes."""
    async with trial(cluster.kubeconfig, tmp_path) as running:
        await running.begin(Transition.UPDATE)
        yield running


@pytest.fixture
async def wanted(one: Trial) -> Children:
    """The children as they should be."""
    return await children(one.api, one.namespace)


def place(one: Trial, kind: str) -> str:
    """Where the child of ``kind`` is that things are done to."""
    return f"{COLLECTIONS[kind].format(one.namespace)}/{NAMES[kind]}"


async def test_children_that_are_deleted_come_back(one: Trial, wanted: Children) -> None:
    before = {kind: await one.api.get(place(one, kind)) for kind in COLLECTIONS}
    for kind in COLLECTIONS:
        await one.api.delete(place(one, kind))
    await one.healed(wanted, HEAL_SECONDS)
    for kind, body in before.items():
        after = await one.api.get(place(one, kind))
        assert after["metadata"]["uid"] != body["metadata"]["uid"], f"{kind} was never deleted"


async def test_values_that_are_changed_by_hand_are_set_again(one: Trial, wanted: Children) -> None:
    assert EDITS.keys() == COLLECTIONS.keys()
    for kind, edit in EDITS.items():
        await one.api.merge(place(one, kind), edit)
    await one.healed(wanted, HEAL_SECONDS)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
async def test_labels_that_are_changed_by_hand_are_set_again(
    one: Trial, wanted: Children, labels: Mapping[str, str | None]
) -> None:
    for kind in COLLECTIONS:
        await one.api.merge(place(one, kind), {"metadata": {"labels": labels}})
    await one.healed(wanted, HEAL_SECONDS)


async def test_owners_that_are_taken_away_are_set_again(one: Trial, wanted: Children) -> None:
    for kind in COLLECTIONS:
        await one.api.merge(place(one, kind), {"metadata": {"ownerReferences": None}})
    await one.healed(wanted, HEAL_SECONDS)


async def test_what_others_add_stays_through_a_change(one: Trial) -> None:
    """An annotation on every child, a sidecar, and replicas that an autoscaler has set."""
    note = {"metadata": {"annotations": {"example.com/note": "kept"}}}
    for kind in COLLECTIONS:
        await one.api.merge(place(one, kind), note)
    sidecar = {"name": "mesh", "image": "registry.example/mesh:1"}
    injected = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": TIER},
        "spec": {"template": {"spec": {"containers": [sidecar]}}},
    }
    await one.api.apply(place(one, "Deployment"), injected, manager="mesh")
    await one.api.merge(f"{place(one, 'Deployment')}/scale", {"spec": {"replicas": 3}})

    await one.apply(service("FullSplit", FULL_SPLIT, "second", autoscaled="decode"))
    await one.settle()

    for kind in COLLECTIONS:
        found = await one.api.get(place(one, kind))
        assert found["metadata"]["annotations"]["example.com/note"] == "kept", kind
    deployment = await one.api.get(place(one, "Deployment"))
    names = [each["name"] for each in deployment["spec"]["template"]["spec"]["containers"]]
    assert sorted(names) == ["mesh", "triptych"]
    assert deployment["spec"]["replicas"] == 3
    assert not any(
        "f:replicas" in entry["fieldsV1"].get("f:spec", {})
        for entry in deployment["metadata"]["managedFields"]
        if entry["manager"] == "triptych"
    )
