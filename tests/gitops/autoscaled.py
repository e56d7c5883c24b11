"""A tier under Flux that the cluster's own autoscaler moves, as pods tell more and less work."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from cluster.addresses import own_address
from cluster.api import Api, Object
from cluster.children import COLLECTIONS, PODS, SERVICES
from cluster.control_plane import ControlPlane
from cluster.kwok import READY_AFTER, Kwok
from cluster.ports import free_port
from cluster.waiting import eventually
from control_plane.embedded_metrics import charted, operator
from control_plane.pod_pages import PodPages, played_by, random_network
from triptych_operator.desired.naming import COMPONENT, DELETION_COST
from triptych_worker.domain import Load

Found = TypeVar("Found")

AUTOSCALER: Final = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
NODES: Final = "kwok-loopback"
TIERS: Final = ("encoder", "fused", "gateway")
ENCODERS: Final = "shapes-encoder"
TOKENS: Final = 100  # of backlog for each encoder
SIZES: Final = (3, 1, 5, 2)  # what the signal asks for, in turn
SECONDS: Final = 90.0  # for a move, on a busy machine
_WARM: Final = {"metadata": {"annotations": {READY_AFTER: "1s"}}}
# The autoscaler's defaults wait for minutes before they take pods away, and add four at most.
_AT_ONCE: Final = {
    "scaleUp": {"policies": [{"type": "Pods", "value": max(SIZES), "periodSeconds": 1}]},
    "scaleDown": {"stabilizationWindowSeconds": 0},
}


def scaled_spec() -> Mapping[str, Any]:
    """The part of the spec by which encoders follow what they have to do."""
    metric = {"signal": "BacklogTokens", "target": str(TOKENS)}
    scaling = {"min": 1, "max": max(SIZES), "metrics": [metric], "behavior": _AT_ONCE}
    tiers: dict[str, dict[str, Any]] = {tier: {"template": played_by(NODES)} for tier in TIERS}
    tiers["encoder"]["autoscaling"] = scaling
    tiers["encoder"]["template"] |= _WARM
    return {"topology": "EncodeSplit", "tiers": tiers}


@dataclass(frozen=True)
class Autoscaled:
    """A namespace whose pods tell what they have to do, to an operator that tells the cluster."""

    api: Api
    namespace: str
    pages: PodPages
    tail: Callable[[], str]  # of the operator's log

    async def resource(self) -> Object:
        """The service."""
        return await self.api.get(f"{SERVICES.format(self.namespace)}/shapes")

    async def encoders(self) -> Object:
        """The tier's Deployment."""
        deployments = COLLECTIONS["Deployment"].format(self.namespace)
        return await self.api.get(f"{deployments}/{ENCODERS}")

    async def undisturbed(self, read: Callable[[], Found]) -> tuple[Object, Found]:
        """The tier's Deployment, and what is read while nobody moves it: what is counted beside it
        is of that very moment."""

        async def look() -> tuple[Object, Found] | None:
            before, found, after = await self.encoders(), read(), await self.encoders()
            same = before["metadata"]["generation"] == after["metadata"]["generation"]
            return (after, found) if same else None

        seen = await eventually(look, "a moment without a move", seconds=SECONDS)
        assert seen is not None
        return seen

    async def follow(self, seconds: float) -> int:
        """Has the work of one encoder go up and down, each time until the service says that it is
        ready with as many encoders as that takes; gives how often."""
        deadline = time.monotonic() + seconds
        (busy,) = await self._pods()
        self._work(busy, SIZES[-1])
        await self._until(lambda: self._stays(busy["metadata"]["name"]), "a cost of the busy pod")
        for times, size in enumerate(itertools.cycle(SIZES)):
            if time.monotonic() > deadline and times >= 2:  # both ways
                return times
            self._work(busy, size)
            await self._until(lambda wanted=size: self._is_ready_with(wanted), f"{size} encoders")
        raise AssertionError("a cycle does not end")

    def _work(self, busy: Object, size: int) -> None:
        load = Load(waiting=size, backlog_tokens=size * TOKENS)
        self.pages.loads = {busy["status"]["podIP"]: load}

    async def _pods(self) -> list[Object]:
        selector = f"?labelSelector={COMPONENT}=encoder"
        return await self.api.items(PODS.format(self.namespace) + selector)

    async def _stays(self, name: str) -> bool:
        """Whether the pod costs more than others: those go before it."""
        costs = {
            pod["metadata"]["name"]: pod["metadata"].get("annotations", {}).get(DELETION_COST, "0")
            for pod in await self._pods()
        }
        return int(costs[name]) > 0

    async def _is_ready_with(self, size: int) -> bool:
        status = (await self.resource())["status"]
        told = {tier["name"]: tier["pods"] for tier in status.get("tiers", ())}
        ready = [one["status"] for one in status.get("conditions", ()) if one["type"] == "Ready"]
        return told.get("encoder") == f"{size}/{size}" and ready == ["True"]

    async def _until(self, look: Callable[[], Any], what: str) -> None:
        try:
            await eventually(look, what, seconds=SECONDS)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.tail()}") from error


@asynccontextmanager
async def autoscaled(
    control_plane: ControlPlane, namespace: str, folder: Path
) -> AsyncIterator[Autoscaled]:
    """While inside, an operator serves the namespace's signals, and pods answer it."""
    network = random_network()
    log, address = folder / "operator.log", f"{own_address()}:{free_port()}"
    nodes = Kwok(control_plane, folder, nodes=1, name=NODES, network=network, reserved=True)
    running = operator(control_plane, log, namespace, address)
    with nodes, charted(control_plane, namespace):
        async with Api(control_plane.kubeconfig) as api, PodPages(network) as pages, running:
            yield Autoscaled(api, namespace, pages, running.tail)
