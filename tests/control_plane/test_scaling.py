"""Numbers of pods on a real API server, with the real HPA controller and pods that kwok plays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from cluster.api import Object
from cluster.children import PODS
from cluster.kubectl import Cluster
from cluster.kwok import ENDS_AFTER
from cluster.waiting import eventually
from control_plane.served import SECONDS, Served, served
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.cluster import connection
from triptych_operator.cluster.api import Api
from triptych_operator.controller.audit import Audit
from triptych_operator.controller.scaling import Scaler
from triptych_operator.desired.platform import Platform
from triptych_operator.observed.store import ServiceKey, Store
from triptych_operator.signals.board import SignalBoard, TierSignals

ENCODER: Final = "shapes-encoder"
QUIET: Final = {Signal.PICTURE_REQUESTS_PER_SECOND: 0.0, Signal.REQUESTS_WITHOUT_ENCODER: 0.0}
WAITED_FOR: Final = {**QUIET, Signal.REQUESTS_WITHOUT_ENCODER: 1.0}
RESTING: Final = {"min": 2, "max": 4, "scaleToZeroAfter": "10m"}


@pytest.fixture
async def one(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Served]:
    async with served(cluster, tmp_path) as made:
        yield made


@dataclass
class Acting:
    """What acts on signals, with a board that is written by hand: kwok's pods measure nothing."""

    scaler: Scaler
    audit: Audit
    board: SignalBoard
    key: ServiceKey
    now: float = 0.0

    async def look(self, values: Mapping[Signal, float], work: Mapping[str, float]) -> None:
        await self.audit.fill()
        signals = TierSignals(Tier.ENCODER, self.now, len(work), len(work), values, work)
        self.board.put(self.key, signals)
        await self.scaler.look(self.key)


@asynccontextmanager
async def acting(cluster: Cluster, namespace: str) -> AsyncIterator[Acting]:
    async with Api(await connection.load(cluster.kubeconfig)) as api:
        store, board = Store(), SignalBoard(1e9)
        audit = Audit(api, store, (namespace,), 1.0, lambda _: None)
        scaler = Scaler(api, store, board, Platform("worker:1"), now=lambda: made.now)
        made = Acting(scaler, audit, board, ServiceKey(namespace, "shapes"))
        yield made


async def encoders(one: Served) -> str:
    """Ready and desired pods, as the status counts them."""
    tiers = (await one.resource())["status"].get("tiers", ())
    return next((str(tier["pods"]) for tier in tiers if tier["name"] == "encoder"), "")


async def until_encoders(one: Served, pods: str) -> None:
    async def so() -> bool:
        return await encoders(one) == pods

    await eventually(so, f"{pods} encoders", seconds=SECONDS)


async def pods_of(one: Served) -> list[Object]:
    selector = "?labelSelector=app.kubernetes.io/component=encoder"
    found = await one.api.items(PODS.format(one.namespace) + selector)
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


async def test_encoders_rest_and_wake_beside_their_autoscaler(
    cluster: Cluster, one: Served
) -> None:
    await one.apply(tiers__encoder__autoscaling=RESTING, degraded__onEncoderLoss="Queue")
    await until_encoders(one, "2/2")
    await one.until("Ready", "True")
    async with acting(cluster, one.namespace) as acts:
        await acts.look(QUIET, {})
        acts.now += 600.0
        await acts.look(QUIET, {})
        await until_encoders(one, "0/0")
        await one.until("EncoderReady", "True", "Resting")
        await one.until("Ready", "True")
        await eventually(lambda: _says(one, "ScalingDisabled"), "its word", seconds=SECONDS)
        await one.apply(
            tiers__encoder__autoscaling=RESTING,
            tiers__encoder__limits={"batchVisualTokens": 99},
            degraded__onEncoderLoss="Queue",
        )
        await one.until("Ready", "True")
        assert await encoders(one) == "0/0", "a new version is rolled out without a pod of it"
        await acts.look(WAITED_FOR, {})
        await until_encoders(one, "2/2")
        await one.until("EncoderReady", "True", "PodsReady")
        await eventually(lambda: _says(one, "SucceededGetScale"), "its word", seconds=SECONDS)


async def _says(one: Served, reason: str) -> bool:
    autoscaler = await one.api.get(one.path("HorizontalPodAutoscaler", ENCODER))
    found = autoscaler.get("status", {}).get("conditions", ())
    return any(condition["reason"] == reason for condition in found)


async def test_the_emptiest_pods_are_the_first_to_go(cluster: Cluster, one: Served) -> None:
    await one.apply(tiers__encoder__autoscaling={"min": 4, "max": 4})
    await until_encoders(one, "4/4")
    names = sorted(pod["metadata"]["name"] for pod in await pods_of(one))
    work = dict(zip(names, (5.0, 0.0, 40.0, 1.0), strict=True))
    async with acting(cluster, one.namespace) as acts:
        await acts.look({}, work)
    await one.apply(tiers__encoder__autoscaling={"min": 1, "max": 2})
    await until_encoders(one, "2/2")
    left = sorted(pod["metadata"]["name"] for pod in await pods_of(one))
    assert left == [names[0], names[2]]


async def test_a_tier_shrinks_no_further_while_it_drains(cluster: Cluster, one: Served) -> None:
    async def fewest(pods: int) -> bool:
        autoscaler = await one.api.get(one.path("HorizontalPodAutoscaler", ENCODER))
        return bool(autoscaler["spec"]["minReplicas"] == pods)

    # Longer than it takes to look, whatever else the machine does: the test ends the drain.
    slow = {"metadata": {"annotations": {ENDS_AFTER: "2m"}}}
    four, fewer = {"min": 4, "max": 4}, {"min": 1, "max": 3}
    await one.apply(tiers__encoder={"autoscaling": four, "template": slow})
    await until_encoders(one, "4/4")
    await one.apply(tiers__encoder={"autoscaling": fewer, "template": slow})
    await until_encoders(one, "3/3")
    await eventually(lambda: fewest(3), "the hold", seconds=SECONDS)
    pods = await one.api.items(PODS.format(one.namespace))
    [draining] = [pod for pod in pods if "deletionTimestamp" in pod["metadata"]]
    at_once = ("--grace-period=0", "--force", f"-n={one.namespace}")
    cluster.kubectl("delete", "pod", draining["metadata"]["name"], *at_once)
    await eventually(lambda: fewest(1), "the end of the hold", seconds=SECONDS)
    await until_encoders(one, "3/3")


async def test_encoders_follow_prefills_within_their_own_bounds(one: Served) -> None:
    balanced: dict[str, Any] = {
        "tiers__encoder__autoscaling": {"min": 1, "max": 3},
        "balance": {"encoderPerPrefill": {"min": "500m"}},
    }
    await one.apply(tiers__prefill__replicas=4, **balanced)
    await until_encoders(one, "2/2")
    await one.apply(tiers__prefill__replicas=8, **balanced)
    await until_encoders(one, "3/3")  # its own max holds
    await one.until("Ready", "True")
    autoscaler = await one.api.get(one.path("HorizontalPodAutoscaler", ENCODER))
    assert (autoscaler["spec"]["minReplicas"], autoscaler["spec"]["maxReplicas"]) == (3, 3)
    assert autoscaler["metadata"]["managedFields"][0]["manager"] == "triptych"
