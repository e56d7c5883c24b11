"""Whole flushes: pods that hold caches, an API server that has the status, an operator between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import pytest
from api_server import refusing, status
from caches.cache_pods import CachePod
from children_of import (
    PLATFORM,
    SHAPES,
    body,
    make_ready,
    put_pod,
    resource,
    roll_out,
    scaled,
    standing,
)
from desk import Desk
from triptych_contract.errors import FingerprintMismatch, Unavailable
from triptych_contract.fingerprints import EncoderIdentity, encoder_fingerprint
from triptych_contract.names import Cache, Tier
from triptych_operator.api.status import CachesStatus, Condition, ConditionType
from triptych_operator.caches.calls import HolderCalls
from triptych_operator.cluster.kinds import DEPLOYMENT, POD, SERVICE_RESOURCE
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.controller.flush import Flusher
from triptych_operator.controller.scaling import Scaler
from triptych_operator.signals.board import SignalBoard, TierSignals
from triptych_operator.signals.caches import CacheUse

ENCODER = EncoderIdentity("builtin://shapes", "1", weights="ab" * 32, processor_revision="1")
NEW, OLD = encoder_fingerprint(ENCODER), "b" * 64
TIERS = ("encoder", "prefill", "decode", "gateway")


@dataclass
class Scene:
    desk: Desk
    flusher: Flusher
    pods: dict[str, CachePod]

    async def flush(self) -> None:
        """Everything is observed, then flushed if it is due."""
        await self.desk.observe()
        await self.flusher.flush(SHAPES)

    async def in_service(self) -> None:
        """Reconciles until all pods are ready, at the addresses of ours."""
        for _ in range(6):
            make_ready(self.desk.server)
            for tier in TIERS:
                if f"shapes-{tier}" in standing(self.desk.server, "Deployment"):
                    template = body(self.desk.server, "Deployment", f"shapes-{tier}")["spec"]
                    address = self.pods[tier].address if tier in self.pods else "127.0.0.99"
                    put_pod(
                        self.desk.server, f"shapes-{tier}-0", template["template"], podIP=address
                    )
            await self.desk.reconcile()

    @property
    def caches(self) -> CachesStatus | None:
        return self.desk.status().caches

    @property
    def condition(self) -> Condition | None:
        found = self.desk.status().conditions
        return next((one for one in found if one.type == ConditionType.CACHES_COHERENT), None)

    def said(self) -> tuple[str, str]:
        assert self.condition is not None
        return self.condition.status, self.condition.reason

    def events(self) -> list[tuple[str, str]]:
        objects = self.desk.server.objects.items()
        posted = [one.body for (kind, *_), one in objects if kind == "Event"]
        told = [(one["type"], one["reason"]) for one in posted]
        return [one for one in told if one[1] != "Ready" and one[1] != "TiersNotReady"]


@pytest.fixture
async def scene(desk: Desk) -> AsyncIterator[Scene]:
    pods = {
        "encoder": CachePod("127.0.0.11", ENCODER, held={NEW: 10, OLD: 5}),
        "prefill": CachePod("127.0.0.12", held={OLD: 7, "": 5}),
        "gateway": CachePod("127.0.0.13", held={NEW: 1}),
    }
    port = 0
    async with AsyncExitStack() as stack:
        for pod in pods.values():
            port = await pod.start(port)  # one port, as of all pods of a cluster
            stack.push_async_callback(pod.stop)
        flusher = Flusher(
            desk.api,
            desk.store,
            PLATFORM,
            desk.wanted,
            HolderCalls(port),
            clock=lambda: desk.now,
        )
        resource(desk.server)
        yield Scene(desk, flusher, pods)


def ask_for_a_flush(scene: Scene) -> None:
    found = scene.desk.server.get(SERVICE_RESOURCE, "n", "shapes")
    assert found is not None
    asked = {**found["metadata"], "annotations": {"triptych.dev/flush-caches": "now"}}
    scene.desk.server.put(SERVICE_RESOURCE, {**found, "metadata": asked})


async def test_nothing_is_dropped_before_the_new_version_is_in_service(scene: Scene) -> None:
    await scene.desk.reconcile()
    await scene.flush()
    assert scene.said() == ("False", "RollingOut")
    assert [pod.asked for pod in scene.pods.values()] == [[], [], []]
    await scene.flush()
    assert scene.desk.server.writes == []


async def test_every_holder_keeps_the_one_fingerprint_and_the_status_tells(scene: Scene) -> None:
    await scene.in_service()
    await scene.flush()
    assert [pod.held for pod in scene.pods.values()] == [{NEW: 10}, {"": 5}, {NEW: 1}]
    assert scene.said() == ("True", "OneFingerprintEverywhere")
    caches = scene.caches
    assert caches is not None
    assert (caches.fingerprint, caches.epoch, caches.holders) == (NEW, 1, "3/3")
    assert (caches.bytes_freed, caches.reason) == (12, "FirstVersion")
    assert scene.events() == [("Normal", "CachesFlushed")]


async def test_a_flush_leaves_what_is_said_of_the_use_of_caches(scene: Scene) -> None:
    await scene.in_service()
    await scene.flush()
    signals = TierSignals(Tier.ENCODER, 0.0, caches=(CacheUse(Cache.ENCODER, hits=7.0),))
    board = SignalBoard(lasting=1e9)
    board.put(SHAPES, signals)
    await scene.desk.observe()
    await Scaler(scene.desk.api, scene.desk.store, board, PLATFORM).look(SHAPES)
    ask_for_a_flush(scene)
    await scene.flush()
    assert scene.caches is not None
    assert (scene.caches.epoch, scene.caches.reason) == (2, "Requested")
    assert [(one.name, one.hits) for one in scene.caches.use] == [(Cache.ENCODER, 7)]


def put_to_rest(scene: Scene) -> None:
    """Takes all encoders away."""
    scene.desk.server.put(DEPLOYMENT, scaled("shapes-encoder", 0))
    scene.desk.server.remove(POD, "n", "shapes-encoder-0")
    roll_out(scene.desk.server, "shapes-encoder")


async def test_what_a_version_is_while_its_encoders_rest_is_learnt_when_they_wake(
    scene: Scene,
) -> None:
    resting = {"max": 2, "scaleToZeroAfter": "10m"}
    asked = {"tiers__encoder__autoscaling": resting, "degraded__onEncoderLoss": "Queue"}
    resource(scene.desk.server, **asked)
    await scene.in_service()
    put_to_rest(scene)
    await scene.flush()
    assert scene.said() == ("False", "RollingOut")
    assert scene.condition is not None
    assert scene.condition.message.startswith("waits for an encoder")
    scene.desk.server.put(DEPLOYMENT, scaled("shapes-encoder", 1))
    await scene.in_service()
    await scene.flush()
    assert scene.said() == ("True", "OneFingerprintEverywhere")


async def test_coherent_caches_are_left_alone(scene: Scene) -> None:
    await scene.in_service()
    await scene.flush()
    await scene.flush()
    await scene.desk.reconcile()
    assert scene.desk.server.writes == []
    assert [pod.asked for pod in scene.pods.values()] == [[NEW], [NEW], [NEW]]
    assert scene.said() == ("True", "OneFingerprintEverywhere")


async def test_a_changed_encoder_is_followed_once_it_is_in_service(scene: Scene) -> None:
    await scene.in_service()
    await scene.flush()
    resource(scene.desk.server, model__encoder={"source": "builtin://shapes", "revision": "2"})
    await scene.desk.reconcile()
    await scene.flush()
    assert scene.said() == ("False", "RollingOut")
    second = replace(ENCODER, revision="2")
    scene.pods["encoder"].encoder, newer = second, encoder_fingerprint(second)
    await scene.in_service()
    await scene.flush()
    caches = scene.caches
    assert caches is not None
    assert (caches.fingerprint, caches.epoch, caches.bytes_freed) == (newer, 2, 11)
    assert caches.reason == "EncoderChanged"
    assert scene.said() == ("True", "OneFingerprintEverywhere")


async def test_a_token_asks_for_one_flush(scene: Scene) -> None:
    await scene.in_service()
    await scene.flush()
    ask_for_a_flush(scene)
    await scene.flush()
    await scene.flush()
    caches = scene.caches
    assert caches is not None
    assert (caches.epoch, caches.reason, caches.flush_token) == (2, "Requested", "now")


async def test_a_flush_can_be_asked_for_while_encoders_rest(scene: Scene) -> None:
    resting = {"max": 2, "scaleToZeroAfter": "10m"}
    resource(
        scene.desk.server, tiers__encoder__autoscaling=resting, degraded__onEncoderLoss="Queue"
    )
    await scene.in_service()
    scene.desk.server.put(DEPLOYMENT, scaled("shapes-encoder", 1))
    await scene.in_service()
    await scene.flush()
    put_to_rest(scene)
    scene.pods["prefill"].held = {OLD: 7}
    ask_for_a_flush(scene)
    await scene.flush()
    caches = scene.caches
    assert caches is not None
    assert (caches.epoch, caches.fingerprint, caches.holders) == (2, NEW, "2/2")
    assert scene.said() == ("True", "OneFingerprintEverywhere")


async def test_a_holder_that_does_not_answer_is_named_and_asked_again(scene: Scene) -> None:
    await scene.in_service()
    await scene.pods["prefill"].stop()
    with pytest.raises(Unavailable, match="shapes-prefill-0"):
        await scene.flush()
    assert scene.said() == ("False", "HolderUnreachable")
    assert scene.pods["encoder"].held == {NEW: 10}
    with pytest.raises(Unavailable):
        await scene.flush()
    assert scene.desk.server.writes == []
    assert scene.events() == [("Warning", "HolderUnreachable")]


async def test_an_encoder_that_is_not_what_it_says_is_named_and_nothing_dropped(
    scene: Scene,
) -> None:
    await scene.in_service()
    scene.pods["encoder"].stated = OLD
    with pytest.raises(FingerprintMismatch, match="shapes-encoder-0"):
        await scene.flush()
    assert scene.said() == ("False", "EncoderContradictsItself")
    assert scene.events() == [("Warning", "EncoderContradictsItself")]
    assert [pod.asked for pod in scene.pods.values()] == [[], [], []]
    scene.pods["encoder"].stated = ""
    await scene.flush()
    assert scene.said() == ("True", "OneFingerprintEverywhere")


async def test_what_is_leased_goes_when_it_is_released(scene: Scene) -> None:
    await scene.in_service()
    scene.pods["prefill"].leased = {OLD}
    with pytest.raises(Unavailable):
        await scene.flush()
    assert scene.said() == ("False", "HolderHoldsOld")
    scene.pods["prefill"].leased = set()
    await scene.flush()
    assert scene.said() == ("True", "OneFingerprintEverywhere")


async def test_an_operator_that_is_gone_before_it_could_say_so_flushes_again(scene: Scene) -> None:
    await scene.in_service()
    lost = refusing("PATCH MultimodalService", lambda: status(503, "ServiceUnavailable", "x"), 1)
    scene.desk.server.faults.append(lost)
    with pytest.raises(Refusal):
        await scene.flush()
    assert scene.condition is None
    await scene.flush()
    assert scene.said() == ("True", "OneFingerprintEverywhere")


async def test_the_two_parts_of_the_status_do_not_disturb_each_other(scene: Scene) -> None:
    await scene.in_service()
    await scene.flush()
    resource(scene.desk.server, tiers__decode__replicas=2)
    await scene.in_service()
    assert scene.said() == ("True", "OneFingerprintEverywhere")
    assert scene.caches is not None
    assert [one.pods for one in scene.desk.status().tiers] == ["1/1", "1/1", "2/2", "1/1"]


async def test_a_change_that_leaves_the_encoder_is_coherent_without_a_flush(scene: Scene) -> None:
    await scene.in_service()
    await scene.flush()
    generation = resource(scene.desk.server, tiers__decode__replicas=2)["metadata"]["generation"]
    await scene.flush()
    assert scene.condition is not None
    assert (scene.condition.status, scene.condition.observed_generation) == ("True", generation)
    assert generation > 1
    assert [pod.asked for pod in scene.pods.values()] == [[NEW], [NEW], [NEW]]
    await scene.flush()
    assert scene.desk.server.writes == []
