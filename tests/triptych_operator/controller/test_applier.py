"""What is written, in which order, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from api_server import Call, refusing, status
from children_of import (
    ALL_KINDS,
    SHAPES,
    applies,
    body,
    foreign,
    kinds,
    resource,
    service,
    standing,
)
from desk import Desk
from triptych_operator.cluster.kinds import BY_NAME, DEPLOYMENT
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.controller.applier import HANDOVER, Applier
from triptych_operator.desired.difference import sealed
from triptych_operator.desired.state import AUTOSCALERS, KINDS

SCALED = {"min": 1, "max": 3, "metrics": [{"signal": "RunningRequests", "target": "8"}]}
DECODE = "shapes-decode"


async def test_everything_is_made_kind_after_kind(desk: Desk) -> None:
    resource(desk.server, tiers__decode__autoscaling=SCALED)
    await desk.reconcile()
    assert kinds(applies(desk.server)) == [kind for kind in KINDS if kind != "ScaledObject"]
    assert {kind for kind, *_ in desk.server.objects} == {*ALL_KINDS, "MultimodalService"}
    tiers = [f"shapes-{tier}" for tier in ("decode", "encoder", "gateway", "prefill")]
    assert standing(desk.server, "Deployment") == tiers
    assert standing(desk.server, "HorizontalPodAutoscaler") == [DECODE]


async def test_every_child_is_owned_by_its_resource(desk: Desk) -> None:
    made = resource(desk.server, tiers__decode__autoscaling=SCALED)
    await desk.reconcile()
    for (kind, _, name), one in desk.server.objects.items():
        if kind != "MultimodalService":
            [owner] = one.body["metadata"]["ownerReferences"]
            assert owner == {
                "apiVersion": "triptych.dev/v1alpha1",
                "kind": "MultimodalService",
                "name": "shapes",
                "uid": made["metadata"]["uid"],
                "controller": True,
            }, (kind, name)


async def test_a_second_look_writes_nothing(desk: Desk) -> None:
    resource(desk.server, tiers__decode__autoscaling=SCALED)
    await desk.reconcile()
    await desk.reconciler.reconcile(SHAPES)
    await desk.reconcile()
    await desk.reconcile()
    assert desk.server.writes == []


async def test_nothing_is_written_after_the_operator_has_started_anew(desk: Desk) -> None:
    resource(desk.server)
    await desk.reconcile()
    other = Desk(desk.server, desk.api)
    await other.reconcile()
    assert desk.server.writes == []


async def test_a_child_is_made_and_changed_by_one_call_each(desk: Desk) -> None:
    resource(desk.server)
    await desk.reconcile()
    made = [call for call in desk.server.calls if call.name == DECODE]
    assert {call.method for call in made} == {"PATCH"}, "none is looked for first"
    assert len({call.kind for call in made}) == len(made)
    resource(desk.server, tiers__decode__replicas=3)
    await desk.reconcile()
    [changed] = [call for call in desk.server.calls if call.name == DECODE]
    assert changed.text == f"PATCH Deployment {DECODE}"
    assert changed.query == {"fieldManager": "triptych", "force": "true"}


async def test_an_object_that_somebody_makes_at_that_moment_is_not_taken_over(desk: Desk) -> None:
    resource(desk.server)
    theirs: list[dict[str, Any]] = []

    async def overtake(call: Call) -> None:
        if call.text == f"PATCH Service {DECODE}" and not theirs:
            theirs.append(desk.server.put(*foreign("Service", DECODE)))

    desk.server.faults.append(overtake)
    with pytest.raises(Refusal, match="belongs to somebody else"):
        await desk.reconcile()
    assert [body(desk.server, "Service", DECODE)] == theirs


DRIFT: dict[str, tuple[str, dict[str, Any]]] = {
    "the number of pods": ("Deployment", {"spec": {"replicas": 7}}),
    "a label": ("Service", {"metadata": {"labels": {"app.kubernetes.io/part-of": "other"}}}),
    "data": ("ConfigMap", {"data": {"config.json": "{}"}}),
    "ports": ("Service", {"spec": {"ports": [{"port": 1}]}}),
    "a policy": ("NetworkPolicy", {"spec": {"ingress": []}}),
    "a budget": ("PodDisruptionBudget", {"spec": {"maxUnavailable": 9}}),
}


@pytest.mark.parametrize(("kind", "change"), DRIFT.values(), ids=DRIFT.keys())
async def test_drift_is_repaired(desk: Desk, kind: str, change: dict[str, Any]) -> None:
    resource(desk.server)
    await desk.reconcile()
    before = body(desk.server, kind, DECODE)
    metadata = {"namespace": "n", "name": DECODE, **change.get("metadata", {})}
    desk.server.put(BY_NAME[kind], {**change, "metadata": metadata})
    await desk.reconcile()
    after = body(desk.server, kind, DECODE)
    assert applies(desk.server) == [f"{kind} {DECODE}"]
    for part in ("spec", "data"):
        assert after.get(part) == before.get(part)
    assert after["metadata"]["labels"] == before["metadata"]["labels"]


async def test_what_others_add_stays_and_causes_no_write(desk: Desk) -> None:
    resource(desk.server)
    await desk.reconcile()
    added = {"namespace": "n", "name": DECODE, "annotations": {"team": "vision"}}
    desk.server.put(DEPLOYMENT, {"metadata": added, "spec": {"paused": False}})
    await desk.reconcile()
    assert desk.server.writes == []
    assert body(desk.server, "Deployment", DECODE)["spec"]["paused"] is False


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in AUTOSCALERS])
async def test_a_child_that_was_deleted_is_made_again(desk: Desk, kind: str) -> None:
    resource(desk.server)
    await desk.reconcile()
    name = "shapes" if kind == "ServiceAccount" else DECODE
    desk.server.remove(BY_NAME[kind], "n", name)
    await desk.reconcile()
    assert applies(desk.server) == [f"{kind} {name}"]


async def test_owner_references_that_were_taken_away_come_back(desk: Desk) -> None:
    resource(desk.server)
    await desk.reconcile()
    metadata = {"namespace": "n", "name": DECODE, "ownerReferences": []}
    desk.server.put(DEPLOYMENT, {"metadata": metadata})
    await desk.reconcile()
    [owner] = body(desk.server, "Deployment", DECODE)["metadata"]["ownerReferences"]
    assert owner["name"] == "shapes"


@pytest.mark.parametrize("label", ["app.kubernetes.io/managed-by", "app.kubernetes.io/instance"])
async def test_a_child_whose_labels_others_took_over_is_healed(desk: Desk, label: str) -> None:
    resource(desk.server)
    await desk.reconcile()
    metadata = {"namespace": "n", "name": DECODE, "labels": {label: "helm"}}
    desk.server.put(DEPLOYMENT, {"metadata": metadata}, manager="helm")
    await desk.reconcile()
    labels = body(desk.server, "Deployment", DECODE)["metadata"]["labels"]
    assert labels[label] in ("triptych", "shapes")
    await desk.reconcile()
    assert desk.server.writes == []


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("ServiceAccount", {}),
        ("ConfigMap", {"data": {"other": "x"}}),
        ("Service", {"spec": {"selector": {"app": "x"}}}),
        ("Deployment", {"spec": {"replicas": 4}}),
        ("NetworkPolicy", {"spec": {"ingress": [{}]}}),
    ],
)
async def test_a_foreign_object_of_the_name_is_left_as_it_is(
    desk: Desk, kind: str, parts: dict[str, Any]
) -> None:
    resource(desk.server)
    name = "shapes" if kind == "ServiceAccount" else DECODE
    theirs = desk.server.put(*foreign(kind, name, **parts))
    with pytest.raises(Refusal) as refused:
        await desk.reconcile()
    assert (refused.value.cause, refused.value.passes) == ("NameTaken", True)
    assert f"{kind} n/{name} exists and belongs to somebody else" in refused.value.message
    assert body(desk.server, kind, name) == theirs
    desk.server.remove(BY_NAME[kind], "n", name)
    await desk.reconcile()
    assert body(desk.server, kind, name)["metadata"]["ownerReferences"]


async def test_one_refusal_keeps_no_other_child_of_its_kind_from_being_made(desk: Desk) -> None:
    resource(desk.server)
    desk.server.faults.append(
        refusing(f"PATCH Deployment {DECODE}", lambda: status(403, "Forbidden", "exceeded quota"))
    )
    with pytest.raises(Refusal, match="exceeded quota"):
        await desk.reconcile()
    assert len(standing(desk.server, "Deployment")) == 3


async def test_tiers_that_are_not_wanted_any_more_are_pruned(desk: Desk) -> None:
    resource(desk.server, tiers__decode__autoscaling=SCALED)
    await desk.reconcile()
    uid = body(desk.server, "HorizontalPodAutoscaler", DECODE)["metadata"]["uid"]
    resource(desk.server, tiers__decode__replicas=1)
    await desk.reconcile()
    [deleted] = [call for call in desk.server.calls if call.method == "DELETE"]
    assert deleted.text == f"DELETE HorizontalPodAutoscaler {DECODE}"
    assert deleted.body["preconditions"] == {"uid": uid}
    assert standing(desk.server, "HorizontalPodAutoscaler") == []


async def test_only_children_of_ours_are_pruned(desk: Desk) -> None:
    made = resource(desk.server)
    await desk.reconcile()
    labels = {
        "app.kubernetes.io/managed-by": "triptych",
        "app.kubernetes.io/instance": "shapes",
    }
    owners = {
        "nobody": [],
        "another": [{"kind": "Other", "name": "x", "uid": "x", "controller": True}],
        "not-controller": [{"kind": "Other", "name": "x", "uid": made["metadata"]["uid"]}],
    }
    for name, references in owners.items():
        metadata = {
            "namespace": "n", "name": name, "labels": labels, "ownerReferences": references
        }  # fmt: skip
        desk.server.put(BY_NAME["ConfigMap"], {"metadata": metadata})
    await desk.reconcile()
    assert desk.server.writes == []


async def test_a_child_that_is_going_already_is_not_deleted_again(desk: Desk) -> None:
    resource(desk.server, tiers__decode__autoscaling=SCALED)
    await desk.reconcile()
    metadata = {"namespace": "n", "name": DECODE, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    desk.server.put(BY_NAME["HorizontalPodAutoscaler"], {"metadata": metadata})
    resource(desk.server, tiers__decode__replicas=1)
    await desk.reconcile()
    assert not [call for call in desk.server.calls if call.method == "DELETE"]


async def test_children_of_a_predecessor_go_before_new_ones_come(desk: Desk) -> None:
    """The resource was deleted and made anew; the garbage collector has not been here yet."""
    first = resource(desk.server)
    await desk.reconcile()
    del desk.server.objects["MultimodalService", "n", "shapes"]
    old = {one.body["metadata"]["uid"] for one in desk.server.objects.values()}
    second = resource(desk.server)
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    with pytest.raises(Refusal) as refused:
        await desk.reconcile()
    assert (refused.value.cause, refused.value.passes) == ("PreviousExists", True)
    await desk.reconcile()  # all are gone, of every kind
    owners = {
        one.body["metadata"]["ownerReferences"][0]["uid"]
        for (kind, *_), one in desk.server.objects.items()
        if kind != "MultimodalService"
    }
    assert owners == {second["metadata"]["uid"]}
    new = {one.body["metadata"]["uid"] for one in desk.server.objects.values()}
    assert not old & new, "none was taken over while it was about to go"


async def test_replicas_change_hands_without_a_dip(desk: Desk) -> None:
    resource(desk.server, tiers__decode__replicas=3)
    await desk.reconcile()
    resource(desk.server, tiers__decode__autoscaling=SCALED)
    await desk.reconcile()
    mine = [call for call in desk.server.calls if call.text == f"PATCH Deployment {DECODE}"]
    assert [call.query["fieldManager"] for call in mine] == [HANDOVER, "triptych"]
    assert mine[0].body["spec"] == {"replicas": 3}
    assert "replicas" not in mine[1].body["spec"]
    assert body(desk.server, "Deployment", DECODE)["spec"]["replicas"] == 3


async def test_replicas_that_the_autoscaler_owns_need_no_other_owner(desk: Desk) -> None:
    resource(desk.server, tiers__decode__autoscaling=SCALED)
    await desk.reconcile()
    scaled = {"metadata": {"namespace": "n", "name": DECODE}, "spec": {"replicas": 2}}
    desk.server.put(DEPLOYMENT, scaled, manager="autoscaler")
    await desk.reconcile()
    assert applies(desk.server) == []
    resource(
        desk.server, tiers__decode__autoscaling=SCALED, tiers__decode__limits={"maxRunning": 3}
    )
    await desk.reconcile()
    assert all(call.query.get("fieldManager") != HANDOVER for call in desk.server.calls)
    assert body(desk.server, "Deployment", DECODE)["spec"]["replicas"] == 2


async def test_a_form_that_the_server_keeps_differently_is_applied_once(desk: Desk) -> None:
    """Such as quantities in other units: what stands never equals what was sent."""
    resource(desk.server)

    async def rewrite(call: Call) -> None:
        if call.text == f"PATCH Service {DECODE}":
            call.body["spec"]["ports"] = [{"port": 50051, "written": "differently"}]

    desk.server.faults.append(rewrite)
    await desk.reconcile()
    await desk.reconcile()
    await desk.reconcile()
    assert desk.server.writes == []
    changed = {"namespace": "n", "name": DECODE}
    desk.server.put(BY_NAME["Service"], {"metadata": changed, "spec": {"type": "NodePort"}})
    await desk.reconcile()
    assert applies(desk.server) == [f"Service {DECODE}"], "but a change by others is still found"


async def test_the_answer_counts_before_any_watch_tells_of_it(desk: Desk) -> None:
    resource(desk.server)
    await desk.observe()
    applier = Applier(desk.api, desk.store, desk.changed.append)
    wanted = [sealed(_account(desk))]
    for _ in range(2):
        await applier.apply(service(desk.server), wanted)
    assert applies(desk.server) == ["ServiceAccount shapes"]


def _account(desk: Desk) -> dict[str, Any]:
    uid = service(desk.server).metadata.uid
    owner = {"kind": "MultimodalService", "name": "shapes", "uid": uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "namespace": "n",
            "name": "shapes",
            "labels": {"app.kubernetes.io/instance": "shapes"},
            "ownerReferences": [owner],
        },
    }


async def test_an_answer_that_is_older_than_what_stands_settles_nothing(desk: Desk) -> None:
    resource(desk.server)
    await desk.observe()
    account = _account(desk)
    later = {"uid": "u", "resourceVersion": "1000000"}
    edited = {**account, "metadata": {**account["metadata"], **later, "annotations": {}}}
    desk.store.put("ServiceAccount", edited)
    applier = Applier(desk.api, desk.store, desk.changed.append)
    for _ in range(2):
        await applier.apply(service(desk.server), [sealed(account)])
    assert applies(desk.server) == ["ServiceAccount shapes", "ServiceAccount shapes"]
