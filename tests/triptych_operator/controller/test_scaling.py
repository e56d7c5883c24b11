"""Looks at signals over an API server in memory: rest and wake, departures, status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from api_server import refusing, status
from children_of import body, make_ready, resource
from desk import Desk
from scaling_scene import ON_WAIT, Scene
from triptych_contract.names import Cache, Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.controller.scaling import STATUS_SECONDS
from triptych_operator.desired.platform import Metrics, Platform
from triptych_operator.signals.caches import CacheUse

QUIET = {Signal.PICTURE_REQUESTS_PER_SECOND: 0.0, Signal.REQUESTS_WITHOUT_ENCODER: 0.0}
WAITED_FOR = {**QUIET, Signal.REQUESTS_WITHOUT_ENCODER: 1.0}
RESTING: dict[str, Any] = {
    "tiers__encoder__autoscaling": {**ON_WAIT, "min": 2, "scaleToZeroAfter": "60s"},
    "degraded__onEncoderLoss": "Queue",
}
MOVED = ["PATCH Deployment shapes-encoder", "POST Event"]
COST = "controller.kubernetes.io/pod-deletion-cost"


def events(scene: Scene) -> list[dict[str, Any]]:
    """All Events, oldest first."""
    found = [one.body for (kind, _, _), one in scene.desk.server.objects.items() if kind == "Event"]
    return sorted(found, key=lambda one: str(one["eventTime"]))


async def test_encoders_rest_when_it_has_been_quiet_and_wake_for_the_first_picture(
    scene: Scene,
) -> None:
    await scene.stands(**RESTING)
    scene.set_encoders(3)
    scene.measures(Tier.ENCODER, QUIET)
    assert await scene.look() == []
    assert await scene.look(later=59.0) == []
    assert await scene.look(later=1.0) == MOVED
    assert scene.encoders() == 0
    make_ready(scene.desk.server)
    assert await scene.look(later=1e5) == []
    scene.measures(Tier.ENCODER, WAITED_FOR)
    assert await scene.look() == MOVED
    assert scene.encoders() == 2
    assert await scene.look() == []


async def test_rest_and_wake_are_told_once_each(scene: Scene) -> None:
    await scene.stands(**RESTING)
    scene.set_encoders(3)
    before = len(events(scene))
    scene.measures(Tier.ENCODER, QUIET)
    for _ in range(4):
        await scene.look(later=30.0)
    scene.measures(Tier.ENCODER, WAITED_FOR)
    for _ in range(4):
        await scene.look(later=30.0)
    told = events(scene)[before:]
    assert [(one["type"], one["reason"], one["note"]) for one in told] == [
        ("Normal", "EncodersRest", "no picture for 60 s: the encoder tier goes to no pods"),
        ("Normal", "EncodersWake", "a picture has come: the encoder tier goes to 2 pods"),
    ]
    resource = body(scene.desk.server, "MultimodalService", "shapes")["metadata"]
    assert {(one["regarding"]["name"], one["regarding"]["uid"]) for one in told} == {
        ("shapes", resource["uid"])
    }


async def test_what_is_refused_is_not_told_as_done(scene: Scene) -> None:
    await scene.stands(**RESTING)
    scene.set_encoders(0)
    scene.measures(Tier.ENCODER, WAITED_FOR)
    busy = refusing("PATCH Deployment", lambda: status(503, "Busy", "busy"), times=1)
    scene.desk.server.faults.append(busy)
    with pytest.raises(Refusal):
        await scene.look()
    assert await scene.look() == MOVED


async def test_a_number_that_changes_in_between_is_left_to_the_next_look(scene: Scene) -> None:
    await scene.stands(**RESTING)
    scene.set_encoders(0)
    scene.measures(Tier.ENCODER, WAITED_FOR)

    async def meanwhile(call: Any) -> None:
        if call.text.startswith("PATCH Deployment"):
            scene.desk.server.faults.clear()
            scene.set_encoders(4)

    scene.desk.server.faults.append(meanwhile)
    with pytest.raises(Refusal, match="modified"):
        await scene.look()
    assert scene.encoders() == 4
    assert await scene.look() == []


async def test_a_picture_or_a_silent_gateway_begins_the_quiet_anew(scene: Scene) -> None:
    await scene.stands(**RESTING)
    scene.set_encoders(2)
    for interruption in ({**QUIET, Signal.PICTURE_REQUESTS_PER_SECOND: 0.1}, {}):
        scene.measures(Tier.ENCODER, QUIET)
        assert await scene.look() == []
        scene.measures(Tier.ENCODER, interruption)
        assert await scene.look(later=40.0) == []
        scene.measures(Tier.ENCODER, QUIET)
        assert await scene.look(later=40.0) == []
    assert scene.encoders() == 2


async def test_after_a_restart_nothing_rests_too_early(scene: Scene) -> None:
    await scene.stands(**RESTING)
    scene.set_encoders(2)
    scene.measures(Tier.ENCODER, QUIET)
    await scene.look()
    scene.scaler = scene.restarted()
    assert await scene.look(later=60.0) == []
    assert await scene.look(later=60.0) == MOVED


async def test_the_autoscaler_owns_the_number_again_after_its_next_change(scene: Scene) -> None:
    await scene.stands(**RESTING)
    scene.set_encoders(0)
    scene.measures(Tier.ENCODER, WAITED_FOR)
    await scene.look()
    scene.set_encoders(4)
    await scene.stands(**RESTING)
    assert scene.encoders() == 4


async def test_who_may_rest_no_more_is_woken(scene: Scene) -> None:
    await scene.stands(**RESTING)
    scene.set_encoders(0)
    await scene.stands(tiers__encoder__autoscaling={"min": 3, "max": 5})
    assert await scene.look() == MOVED
    assert scene.encoders() == 3
    assert events(scene)[-1]["note"] == (
        "scaleToZeroAfter is not set: the encoder tier goes to 3 pods"
    )


async def test_keda_does_it_by_itself(desk: Desk) -> None:
    scene = Scene(desk, platform=Platform("worker:1", metrics=Metrics.KEDA))
    await scene.stands(**RESTING)
    scene.set_encoders(0)
    scene.measures(Tier.ENCODER, WAITED_FOR)
    assert await scene.look() == []


def cost_of(scene: Scene, pod: str) -> str:
    metadata = body(scene.desk.server, "Pod", pod)["metadata"]
    return str(metadata.get("annotations", {}).get(COST, ""))


async def test_pods_are_marked_by_what_they_have_in_hand_and_not_again(scene: Scene) -> None:
    await scene.stands(tiers__encoder__autoscaling=ON_WAIT)
    scene.set_encoders(3)
    pods = [f"shapes-encoder-{number}" for number in range(3)]
    scene.measures(Tier.ENCODER, {}, dict(zip(pods, (9.0, 0.0, 1.0), strict=True)))
    assert await scene.look() == [f"PATCH Pod {pods[number]} status" for number in (2, 0)]
    assert [cost_of(scene, pod) for pod in pods] == ["4", "", "1"]
    assert await scene.look() == []
    scene.measures(Tier.ENCODER, {}, dict(zip(pods, (14.0, 0.0, 2.0), strict=True)))
    assert await scene.look() == [], "tells nothing new"


async def test_pods_of_a_fixed_number_or_of_advice_are_not_marked(scene: Scene) -> None:
    await scene.stands(
        tiers__encoder__replicas=3,
        tiers__decode={"replicas": 3, "autoscaling": {"mode": "Advise", "max": 5}},
    )
    for tier in (Tier.ENCODER, Tier.DECODE):
        scene.measures(tier, {}, {f"shapes-{tier}-0": 9.0, f"shapes-{tier}-1": 0.0})
    assert [one for one in await scene.look() if "Pod" in one] == []


async def test_a_pod_that_is_gone_meanwhile_holds_up_nothing(scene: Scene) -> None:
    await scene.stands(tiers__encoder__autoscaling=ON_WAIT)
    scene.set_encoders(2)
    work = {"shapes-encoder-0": 9.0, "shapes-encoder-1": 3.0}
    scene.measures(Tier.ENCODER, {Signal.QUEUE_WAIT: 1.0}, work)
    gone = refusing("PATCH Pod shapes-encoder-1", lambda: status(404, "NotFound", "gone"))
    scene.desk.server.faults.append(gone)
    assert (await scene.look())[-1] == "PATCH MultimodalService shapes status"
    assert cost_of(scene, "shapes-encoder-0") == "4"


async def test_the_status_tells_signals_and_the_tier_that_limits_a_minute_apart(
    scene: Scene,
) -> None:
    told = ["PATCH MultimodalService shapes status"]
    await scene.stands(tiers__prefill__autoscaling=ON_WAIT)
    scene.measures(Tier.PREFILL, {Signal.QUEUE_WAIT: 0.25})
    assert await scene.look() == told
    [tier] = scene.desk.status().scaling or ()
    assert [(one.name, one.value, one.target) for one in tier.signals] == [
        ("QueueWait", "0.25", "0.5")
    ]
    assert scene.desk.status().limiting_tier is None
    scene.measures(Tier.PREFILL, {Signal.QUEUE_WAIT: 0.4})
    assert await scene.look(later=STATUS_SECONDS - 1) == [], "not so soon"
    scene.measures(Tier.PREFILL, {Signal.QUEUE_WAIT: 0.7})
    assert await scene.look() == told, "but what limits at once"
    assert scene.desk.status().limiting_tier is Tier.PREFILL
    scene.measures(Tier.PREFILL, {Signal.QUEUE_WAIT: 0.74})
    assert await scene.look(later=STATUS_SECONDS) == [], "hardly changed"
    scene.measures(Tier.PREFILL, {Signal.QUEUE_WAIT: 0.9})
    assert await scene.look() == told


async def test_the_status_tells_how_caches_are_used_a_minute_apart(scene: Scene) -> None:
    told = ["PATCH MultimodalService shapes status"]
    await scene.stands()
    use = CacheUse(Cache.ENCODER, 500.0, 1000.0, hits=4.0, misses=1.0, seconds_saved=0.25)
    scene.measures(Tier.ENCODER, {}, None, use)
    assert await scene.look() == told
    await scene.desk.reconcile()
    assert await scene.look(later=1e6) == [], "nothing was asked"
    scene.measures(Tier.ENCODER, {}, None, replace(use, hits=9.0))
    assert await scene.look() == told
    scene.measures(Tier.ENCODER, {}, None, replace(use, hits=99.0))
    assert await scene.look(later=STATUS_SECONDS - 1) == [], "not so soon"
    caches = scene.desk.status().caches
    assert caches is not None
    [said] = caches.use
    assert (said.name, said.bytes, said.capacity) == (Cache.ENCODER, 500, 1000)
    assert (said.hits, said.misses, said.seconds_saved) == (9, 1, "0.25")


async def test_what_is_said_of_signals_and_of_the_rest_stand_side_by_side(scene: Scene) -> None:
    await scene.stands(tiers__prefill__autoscaling=ON_WAIT)
    scene.measures(Tier.PREFILL, {Signal.QUEUE_WAIT: 9.0})
    await scene.look()
    await scene.desk.reconcile()
    assert scene.desk.server.writes == [], "the reconcile leaves alone what it does not say"
    await scene.stands(tiers__prefill__autoscaling=ON_WAIT, tiers__decode__replicas=2)
    found = scene.desk.status()
    assert (found.limiting_tier, found.tiers[2].pods) == (Tier.PREFILL, "2/2")
    await scene.stands(topology="Fused")
    await scene.look(later=STATUS_SECONDS)
    found = scene.desk.status()
    assert ([one.name for one in found.tiers], found.scaling) == (["fused", "gateway"], ())


async def test_what_cannot_be_read_any_more_is_not_said_for_long(scene: Scene) -> None:
    await scene.stands(**RESTING)
    scene.measures(Tier.ENCODER, {Signal.QUEUE_WAIT: 9.0})
    await scene.look()
    scene.board.keep([])
    assert await scene.look(later=STATUS_SECONDS - 1) == []
    assert await scene.look(later=1) == ["PATCH MultimodalService shapes status"]
    assert (scene.desk.status().limiting_tier, scene.desk.status().scaling) == (None, ())
    assert await scene.look(later=1e6) == []


async def test_a_restart_writes_nothing_while_it_has_measured_nothing_yet(scene: Scene) -> None:
    await scene.stands(**RESTING)
    scene.measures(Tier.ENCODER, {Signal.QUEUE_WAIT: 9.0})
    await scene.look()
    scene.board.keep([])
    scene.scaler = scene.restarted()
    assert await scene.look(later=1e6) == []
    scene.measures(Tier.ENCODER, {Signal.QUEUE_WAIT: 9.1})
    assert await scene.look(later=STATUS_SECONDS) == []


async def test_a_resource_that_is_going_or_cannot_be_read_is_left_alone(scene: Scene) -> None:
    await scene.stands(tiers__prefill__autoscaling=ON_WAIT)
    scene.measures(Tier.PREFILL, {Signal.QUEUE_WAIT: 9.0})
    resource(scene.desk.server, topology="Sideways")
    assert await scene.look() == []


async def test_a_refusal_is_for_the_queue_to_try_again(scene: Scene) -> None:
    await scene.stands(tiers__prefill__autoscaling=ON_WAIT)
    scene.measures(Tier.PREFILL, {Signal.QUEUE_WAIT: 9.0})
    busy = refusing("PATCH MultimodalService", lambda: status(503, "Busy", "busy"), times=1)
    scene.desk.server.faults.append(busy)
    with pytest.raises(Refusal):
        await scene.look()
    assert await scene.look() == ["PATCH MultimodalService shapes status"]
