"""The embedded provider before the real API server and the real autoscaler."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from cluster.addresses import own_address
from cluster.api import Api, Object
from cluster.control_plane import ControlPlane, free_port
from cluster.kwok import NODE_LABEL, Kwok
from cluster.operator_process import OperatorProcess
from cluster.waiting import eventually
from control_plane.pod_pages import PodPages
from mms_builders import manifest
from triptych_worker.domain import Load

NAME: Final = "v1beta1.external.metrics.k8s.io"
API_SERVICE: Final = f"/apis/apiregistration.k8s.io/v1/apiservices/{NAME}"
SERVED: Final = "/apis/external.metrics.k8s.io/v1beta1"
BACKLOG: Final = "triptych_encoder_backlog_tokens"
SECONDS: Final = 90.0
AT_ONCE: Final = {"scaleDown": {"stabilizationWindowSeconds": 0}}


@pytest.fixture(scope="module")
def network() -> str:
    """Addresses of loopback that no other run on this machine has, most likely."""
    return f"127.{random.randint(64, 250)}.{random.randint(0, 250)}.0/24"


@pytest.fixture(scope="module")
def loopback_nodes(
    control_plane: ControlPlane, network: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The name of a kwok whose pods have addresses that answer here."""
    name = "kwok-loopback"
    folder = tmp_path_factory.mktemp(name)
    with Kwok(control_plane, folder, nodes=1, name=name, network=network, reserved=True):
        yield name


@dataclass(frozen=True)
class Stage:
    """A namespace with an operator that serves its signals."""

    api: Api
    namespace: str
    pages: PodPages
    operator: OperatorProcess
    nodes: str

    async def apply(self, **encoder: object) -> None:
        """Has a user apply a resource whose pods answer here."""
        where = {
            "nodeSelector": {NODE_LABEL: self.nodes},
            "tolerations": [{"key": NODE_LABEL, "operator": "Exists"}],
        }
        template = {"spec": where}
        tiers = {tier: {"template": template} for tier in ("encoder", "fused", "gateway")}
        tiers["encoder"] |= encoder
        body = manifest(topology="EncodeSplit", tiers=tiers)
        path = f"/apis/triptych.dev/v1alpha1/namespaces/{self.namespace}/multimodalservices/shapes"
        body["metadata"]["name"] = "shapes"
        await self.api.apply(path, body, manager="user")

    async def encoders(self) -> list[Object]:
        """The encoder pods that have an address."""
        found = await self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        return [
            pod
            for pod in found
            if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "encoder"
            and pod["status"].get("podIP")
            and "deletionTimestamp" not in pod["metadata"]
        ]

    async def autoscaler(self) -> Object:
        """The encoder's."""
        return await self.api.get(
            f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers/shapes-encoder"
        )

    async def values(self, metric: str, selector: str = "") -> list[Object]:
        """What the API server hands out of a metric."""
        query = f"?labelSelector={selector}" if selector else ""
        return await self.api.items(f"{SERVED}/namespaces/{self.namespace}/{metric}{query}")

    async def until_encoders(self, count: int) -> None:
        """Waits until there are so many."""

        async def look() -> bool:
            return len(await self.encoders()) == count

        try:
            await eventually(look, f"{count} encoders", seconds=SECONDS)
        except TimeoutError as error:
            stands = json.dumps((await self.autoscaler())["status"], indent=1)
            raise TimeoutError(f"{error}\n{stands}\n{self.operator.tail()}") from error


def front(namespace: str) -> list[dict[str, Any]]:
    """The Service and the APIService, as the chart makes them."""
    port = {"name": "metrics-api", "port": 443, "protocol": "TCP"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "triptych-metrics", "namespace": namespace},
        "spec": {"ports": [port]},
    }
    spec = {
        "group": "external.metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": {"name": "triptych-metrics", "namespace": namespace, "port": 443},
    }
    api_service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": NAME},
        "spec": spec,
    }
    return [service, api_service]


@pytest.fixture
async def stage(
    control_plane: ControlPlane,
    namespace: str,
    loopback_nodes: str,
    network: str,
    tmp_path: Path,
) -> AsyncIterator[Stage]:
    items = {"apiVersion": "v1", "kind": "List", "items": front(namespace)}
    control_plane.kubectl("apply", "-f", "-", manifest=json.dumps(items))
    address = f"{own_address()}:{free_port()}"
    flags = (f"--metrics-service={namespace}/triptych-metrics", f"--metrics-address={address}")
    operator = OperatorProcess(
        control_plane.kubeconfig,
        tmp_path / "operator.log",
        namespace,
        arguments=flags,
        asks_pods=True,
    )
    try:
        async with (
            Api(control_plane.kubeconfig) as api,
            PodPages(network) as pages,
            operator,
        ):
            yield Stage(api, namespace, pages, operator, loopback_nodes)
    finally:
        control_plane.kubectl("delete", "apiservice", NAME)


def scaling(target: str) -> dict[str, object]:
    metric = {"signal": "BacklogTokens", "target": target}
    return {"min": 1, "max": 8, "metrics": [metric], "behavior": AT_ONCE}


async def test_an_autoscaler_follows_what_pods_tell_and_stands_still_when_none_does(
    stage: Stage,
) -> None:
    await stage.apply(autoscaling=scaling("100"))
    await stage.until_encoders(1)
    (pod,) = await stage.encoders()
    stage.pages.loads = {pod["status"]["podIP"]: Load(waiting=4, backlog_tokens=400)}
    await stage.until_encoders(4)
