"""Whole looks at a resource: from what stands to what is written and said."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from api_server import Call, refusing, status
from children_of import (
    SHAPES,
    applies,
    body,
    foreign,
    make_ready,
    put_pod,
    resource,
    roll_out,
    scaled,
    standing,
)
from desk import Desk
from triptych_operator.api.status import Condition, ConditionType
from triptych_operator.cluster.kinds import BY_NAME, SERVICE_RESOURCE
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.observed.store import ObjectKey, ServiceKey

SPLIT = {"encoder", "prefill", "decode", "gateway"}
SETTLES = 12  # looks that any change may take


def condition(desk: Desk, type_: str, name: str = "shapes") -> Condition | None:
    return next((one for one in desk.status(name).conditions if one.type == type_), None)


def said(desk: Desk, type_: str) -> tuple[str, str] | None:
    found = condition(desk, type_)
    return (found.status, found.reason) if found else None


def events(desk: Desk) -> list[tuple[str, str]]:
    """Type and reason of all Events, in order."""
    posted = [one.body for (kind, *_), one in desk.server.objects.items() if kind == "Event"]
    return [(one["type"], one["reason"]) for one in posted]


def tiers(desk: Desk) -> set[str]:
    return {name.removeprefix("shapes-") for name in standing(desk.server, "Deployment")}


async def settle(desk: Desk) -> None:
    """Looks until there is nothing to do, on a cluster whose pods become ready."""
    for _ in range(SETTLES):
        make_ready(desk.server)
        await desk.reconcile()
        if not desk.server.writes:
            return
    raise AssertionError(f"still writes after {SETTLES} looks: {desk.server.writes}")


async def test_a_new_resource_counts_what_it_wants_before_anything_stands(desk: Desk) -> None:
    resource(desk.server, tiers__decode__replicas=2)
    desk.server.faults.append(
        refusing("PATCH Deployment", lambda: status(503, "ServiceUnavailable", "busy"))
    )
    with pytest.raises(Refusal):
        await desk.reconcile()
    assert [one.pods for one in desk.status().tiers] == ["0/1", "0/1", "0/2", "0/1"]


async def test_a_status_is_written_for_the_version_alone_that_was_looked_at(desk: Desk) -> None:
    async def edited_meanwhile(call: Call) -> None:
        if call.text == "PATCH MultimodalService shapes status":
            desk.server.faults.clear()
            resource(desk.server, tiers__decode__replicas=2)

    resource(desk.server)
    desk.server.faults.append(edited_meanwhile)
    with pytest.raises(Refusal) as refused:
        await desk.reconcile()
    assert refused.value.passes
    assert desk.status().tiers == ()
    await desk.reconcile()
    assert desk.status().tiers[2].pods == "0/2"


async def test_children_that_go_with_their_resource_are_not_made_again(desk: Desk) -> None:
    resource(desk.server)
    await settle(desk)
    desk.server.remove(SERVICE_RESOURCE, "n", "shapes")
    gone = BY_NAME["Deployment"]
    desk.server.remove(gone, "n", "shapes-decode")
    desk.store.forget(SHAPES, ObjectKey("Deployment", "n", "shapes-decode"))
    desk.server.calls.clear()
    await desk.reconciler.reconcile(SHAPES)  # the watch has told of the Deployment alone
    assert desk.server.writes == []


async def test_it_is_ready_once_its_pods_are(desk: Desk) -> None:
    resource(desk.server)
    await desk.reconcile()
    assert said(desk, "Ready") == ("False", "TiersNotReady")
    assert said(desk, "Reconciling") == ("True", "RollingOut")
    await settle(desk)
    assert said(desk, "Ready") == ("True", "AllTiersReady")
    assert condition(desk, "Reconciling") is None
    assert events(desk) == [("Normal", "Ready")]


async def test_pods_of_a_namesake_do_not_make_it_ready(desk: Desk) -> None:
    """It was deleted and made anew as it was, and no watch has told of its pods since."""
    resource(desk.server)
    await settle(desk)
    left = {key: one for key, one in desk.server.objects.items() if key[0] == "Pod"}
    desk.server.objects = left
    resource(desk.server)
    await desk.reconcile()
    assert said(desk, "Ready") == ("False", "TiersNotReady")
    ready = condition(desk, "DecodeReady")
    assert ready is not None
    assert ready.message == "decode: 1 of 1 pods ready, which its Deployment does not say yet"
    await settle(desk)
    assert said(desk, "Ready") == ("True", "AllTiersReady")


async def test_older_pods_that_a_deployment_has_adopted_are_its_own(desk: Desk) -> None:
    """Somebody has deleted a Deployment and left its pods, by ``--cascade=orphan``."""
    resource(desk.server)
    await settle(desk)
    desk.server.remove(BY_NAME["Deployment"], "n", "shapes-decode")
    await desk.reconcile()
    assert said(desk, "DecodeReady") == ("False", "RollingOut")
    roll_out(desk.server, "shapes-decode")
    await desk.reconcile()
    assert said(desk, "Ready") == ("True", "AllTiersReady")


async def test_a_status_that_says_nothing_new_is_not_written(desk: Desk) -> None:
    resource(desk.server)
    await settle(desk)
    before = body(desk.server, "MultimodalService", "shapes")
    desk.now += timedelta(hours=1)
    await desk.reconcile()
    assert desk.server.writes == []
    assert body(desk.server, "MultimodalService", "shapes") == before


async def test_times_move_only_with_their_conditions(desk: Desk) -> None:
    resource(desk.server)
    await settle(desk)
    desk.now += timedelta(hours=1)
    desk.server.remove(BY_NAME["Pod"], "n", "shapes-decode-0")
    await desk.reconcile()
    times = {one.type: one.last_transition_time for one in desk.status().conditions}
    assert times[ConditionType.READY] == "2026-01-01T01:00:00Z"
    assert times[ConditionType.DECODE_READY] == "2026-01-01T01:00:00Z"
    assert times[ConditionType.ENCODER_READY] == "2026-01-01T00:00:00Z"
    assert events(desk) == [("Normal", "Ready"), ("Normal", "TiersNotReady")]


async def test_the_generation_is_that_which_was_brought_about(desk: Desk) -> None:
    resource(desk.server)
    await desk.reconcile()
    resource(desk.server, tiers__decode__replicas=2)
    await desk.reconcile()
    assert desk.status().observed_generation == 2
    assert {one.observed_generation for one in desk.status().conditions} == {2}


async def test_an_old_body_never_sets_the_generation_back(desk: Desk) -> None:
    """The watch of the resource is late; its status was written by a process that knew more."""
    made = resource(desk.server)
    await desk.observe()
    newer = {"observedGeneration": 5, "conditions": [], "tiers": [], "url": ""}
    metadata = {"namespace": "n", "name": "shapes"}
    desk.server.put(SERVICE_RESOURCE, {"metadata": metadata, "status": newer}, manager="other")
    await desk.reconcile()
    assert made["metadata"]["generation"] == 1
    assert desk.status().observed_generation == 5


async def test_a_status_of_another_version_is_replaced(desk: Desk) -> None:
    resource(desk.server)
    metadata = {"namespace": "n", "name": "shapes"}
    odd = {"conditions": "none", "phase": "Pending"}
    desk.server.put(SERVICE_RESOURCE, {"metadata": metadata, "status": odd}, manager="triptych")
    await desk.reconcile()
    assert said(desk, "Ready") == ("False", "TiersNotReady")


async def test_a_resource_that_is_not_there_is_nothing_to_do(desk: Desk) -> None:
    await desk.reconcile(ServiceKey("n", "absent"))
    assert desk.server.calls == []


async def test_a_resource_that_is_being_deleted_is_left_alone(desk: Desk) -> None:
    resource(desk.server)
    metadata = {"namespace": "n", "name": "shapes", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    desk.server.put(SERVICE_RESOURCE, {"metadata": metadata}, manager="server")
    await desk.reconcile()
    assert desk.server.writes == []


async def test_a_resource_that_goes_during_the_look_is_no_failure(desk: Desk) -> None:
    resource(desk.server)
    desk.server.faults.append(
        refusing("PATCH MultimodalService", lambda: status(404, "NotFound", "gone"))
    )
    await desk.reconcile()
    assert events(desk) == []


async def test_a_status_that_is_refused_is_tried_again(desk: Desk) -> None:
    resource(desk.server)
    desk.server.faults.append(
        refusing("PATCH MultimodalService", lambda: status(409, "Conflict", "uid differs"), times=1)
    )
    with pytest.raises(Refusal):
        await desk.reconcile()
    await desk.reconcile()
    assert said(desk, "Ready") == ("False", "TiersNotReady")


async def test_the_status_is_written_for_that_very_resource(desk: Desk) -> None:
    made = resource(desk.server)
    await desk.reconcile()
    [call] = [one for one in desk.server.calls if one.subresource == "status"]
    for field in ("uid", "resourceVersion"):
        assert call.body["metadata"][field] == made["metadata"][field]


async def test_a_spec_that_cannot_be_read_changes_nothing_and_is_told(desk: Desk) -> None:
    resource(desk.server)
    await settle(desk)
    before = standing(desk.server, "Deployment")
    resource(desk.server, tiers__decode__drain={"timeout": "a while"})
    await desk.reconcile()
    assert applies(desk.server) == []
    assert said(desk, "Stalled") == ("True", "InvalidSpec")
    found = condition(desk, "Stalled")
    assert found is not None
    assert "spec.tiers.decode.drain.timeout" in found.message
    assert said(desk, "Ready") == ("False", "InvalidSpec")
    assert (desk.status().observed_generation, standing(desk.server, "Deployment")) == (2, before)
    resource(desk.server)
    await settle(desk)
    assert (said(desk, "Ready"), condition(desk, "Stalled")) == (("True", "AllTiersReady"), None)


async def test_a_refusal_is_told_in_the_servers_words(desk: Desk) -> None:
    resource(desk.server)
    desk.server.faults.append(
        refusing("PATCH Deployment shapes-decode", lambda: status(403, "Forbidden", "no quota"))
    )
    for _ in range(3):
        with pytest.raises(Refusal):
            await desk.reconcile()
    found = condition(desk, "Stalled")
    assert found is not None
    assert (found.status, found.reason) == ("True", "Forbidden")
    assert "no quota" in found.message
    assert said(desk, "Ready") == ("False", "Forbidden")
    assert events(desk) == [("Warning", "Forbidden")], "once, not at every look"
    desk.server.faults.clear()
    await settle(desk)
    assert events(desk) == [("Warning", "Forbidden"), ("Normal", "Ready")]


async def test_a_refusal_that_passes_does_not_stall(desk: Desk) -> None:
    resource(desk.server)
    desk.server.faults.append(
        refusing("PATCH Service", lambda: status(429, "TooManyRequests", "busy"))
    )
    with pytest.raises(Refusal):
        await desk.reconcile()
    assert condition(desk, "Stalled") is None
    assert said(desk, "Reconciling") == ("True", "TooManyRequests")


async def test_a_name_that_is_taken_is_told(desk: Desk) -> None:
    resource(desk.server)
    desk.server.put(*foreign("ConfigMap", "shapes-decode", data={"a": "b"}))
    with pytest.raises(Refusal):
        await desk.reconcile()
    found = condition(desk, "Ready")
    assert found is not None
    assert found.reason == "NameTaken"
    assert "ConfigMap n/shapes-decode exists and belongs to somebody else" in found.message


MOVES = [
    ("FullSplit", "Fused"), ("Fused", "FullSplit"), ("EncodeSplit", "FullSplit"),
    ("FullSplit", "EncodeSplit"), ("Fused", "EncodeSplit"), ("EncodeSplit", "Fused"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), MOVES)
async def test_a_topology_gives_way_to_another_without_a_gap(
    desk: Desk, before: str, after: str
) -> None:
    resource(desk.server, topology=before)
    await settle(desk)
    old = tiers(desk)
    resource(desk.server, topology=after)
    await desk.reconcile()
    assert tiers(desk) >= old, "the old tiers serve until the new ones can"
    if tiers(desk) > old:
        gateway = body(desk.server, "Deployment", "shapes-gateway")
        assert gateway["metadata"]["annotations"]["triptych.dev/topology"] == before
    await settle(desk)
    gateway = body(desk.server, "Deployment", "shapes-gateway")
    assert gateway["metadata"]["annotations"]["triptych.dev/topology"] == after
    fresh = Desk(desk.server, desk.api)
    assert tiers(fresh) == {str(one.name) for one in desk.status().tiers}
    assert said(desk, "Ready") == ("True", "AllTiersReady")


TROUBLES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "an image that cannot be pulled": (
        {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
        ("ImagePullBackOff", "image worker:1: no such image"),
    ),
    "a process that keeps ending": (
        {
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 3, "message": "x\nout of memory\n"}},
        },
        (
            "CrashLoopBackOff",
            "container triptych keeps ending (Error, exit status 3): out of memory",
        ),
    ),
}


@pytest.mark.parametrize(("container", "cause"), TROUBLES.values(), ids=TROUBLES.keys())
async def test_the_cause_is_told_by_tier(
    desk: Desk, container: dict[str, Any], cause: tuple[str, str]
) -> None:
    resource(desk.server)
    await settle(desk)
    template = body(desk.server, "Deployment", "shapes-decode")["spec"]["template"]
    state = {"name": "triptych", "image": "worker:1", **container}
    not_ready = [{"type": "Ready", "status": "False"}]
    put_pod(
        desk.server, "shapes-decode-0", template, conditions=not_ready, containerStatuses=[state]
    )
    await desk.reconcile()
    reason, message = cause
    for type_, told in (("Ready", "decode: "), ("Stalled", "decode: "), ("DecodeReady", "")):
        found = condition(desk, type_)
        assert found is not None
        assert (found.reason, found.message) == (reason, f"{told}{message}")
    assert said(desk, "EncoderReady") == ("True", "PodsReady")


async def test_one_resource_is_none_of_anothers_business(desk: Desk) -> None:
    resource(desk.server)
    await settle(desk)
    resource(desk.server, name="other", topology="Fused")
    await desk.reconcile()
    assert desk.server.writes == []
    await desk.reconciler.reconcile(ServiceKey("n", "other"))
    assert all("other" in line for line in applies(desk.server))


async def test_what_it_wrote_is_known_to_the_next_look_at_once(desk: Desk) -> None:
    """The watch tells of it later; until then nothing must be done twice."""
    resource(desk.server)
    await desk.reconcile()
    begun = len(desk.server.calls)
    for _ in range(3):
        await desk.reconciler.reconcile(SHAPES)
    assert len(desk.server.calls) == begun


def bounds(desk: Desk, tier: str) -> tuple[int, int]:
    spec = body(desk.server, "HorizontalPodAutoscaler", f"shapes-{tier}")["spec"]
    return spec["minReplicas"], spec["maxReplicas"]


async def test_the_balance_moves_the_bounds_of_an_autoscaler_and_nothing_else(desk: Desk) -> None:
    scaled_tier = {"min": 1, "max": 20}
    balanced = {
        "tiers__encoder__autoscaling": scaled_tier,
        "tiers__prefill__autoscaling": scaled_tier,
        "balance": {"encoderPerPrefill": {"min": "500m", "max": 2}},
    }
    resource(desk.server, **balanced)
    await settle(desk)
    desk.server.put(BY_NAME["Deployment"], scaled("shapes-prefill", 1), manager="autoscaler")
    await settle(desk)
    assert bounds(desk, "encoder") == (1, 2)
    desk.server.put(BY_NAME["Deployment"], scaled("shapes-prefill", 6), manager="autoscaler")
    await desk.reconcile()
    assert applies(desk.server) == ["HorizontalPodAutoscaler shapes-encoder"]
    await settle(desk)
    assert bounds(desk, "encoder") == (3, 12)
    assert bounds(desk, "prefill") == (1, 20)
