"""KEDA and Prometheus themselves, between pods that tell what they have to do and a number of pods.

Real: both programs from their Go modules, the rules, the monitor and the ScaledObjects as we make
them, the cluster's autoscalers. Played: the pods, whose pages a worker's own code writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from cluster.api import Object
from cluster.children import PODS
from cluster.control_plane import ControlPlane
from cluster.operator_process import OperatorProcess
from cluster.waiting import eventually
from control_plane.pod_pages import PodPages, played_by
from control_plane.served import Served, namespace_of_its_own
from tools.keda import Keda
from tools.prometheus import Prometheus
from triptych_contract.names import Metric, Tier
from triptych_operator.api.autoscaling import MEASURED
from triptych_operator.desired.naming import external_metric
from triptych_operator.signals.sources import GAUGES, RATES
from triptych_worker.domain import Load

AUTOSCALERS: Final = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"
SECONDS: Final = 180.0  # a scrape, KEDA's look every 10 s, the autoscaler's, on a busy machine
AT_ONCE: Final = {"scaleDown": {"stabilizationWindowSeconds": 0}}
BACKLOG: Final = {"signal": "BacklogTokens", "target": "100"}

pytestmark = pytest.mark.timeout(3600)  # both are built the first time


@pytest.fixture(scope="module")
def prometheus(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Prometheus, and KEDA beside it."""
    folder = tmp_path_factory.mktemp("scalers")
    with Prometheus(control_plane, folder) as running, Keda(control_plane, folder):
        yield running


@dataclass(frozen=True)
class Stage:
    """A namespace whose tiers KEDA scales by what Prometheus reads of their pods."""

    served: Served
    pages: PodPages
    prometheus: Prometheus
    nodes: str

    async def apply(self, **autoscaling: object) -> None:
        """Has a user apply a resource whose encoders are autoscaled so."""
        template = {"template": played_by(self.nodes)}
        tiers: dict[str, Any] = {f"tiers__{tier}": template for tier in ("fused", "gateway")}
        scaled = {"min": 1, "max": 8, "metrics": [BACKLOG], "behavior": AT_ONCE, **autoscaling}
        tiers["tiers__encoder"] = {**template, "autoscaling": scaled}
        await self.served.apply(topology="EncodeSplit", degraded__onEncoderLoss="Queue", **tiers)

    async def pods(self, tier: Tier) -> list[Object]:
        """The pods of a tier that have an address and stay."""
        selector = f"?labelSelector=app.kubernetes.io/component={tier}"
        found = await self.served.api.items(PODS.format(self.served.namespace) + selector)
        return [
            pod
            for pod in found
            if pod["status"].get("podIP") and "deletionTimestamp" not in pod["metadata"]
        ]

    async def address(self, tier: Tier) -> str:
        """Of the only pod of a tier."""
        (pod,) = await self.until(tier, 1)
        return str(pod["status"]["podIP"])

    async def until(self, tier: Tier, count: int) -> list[Object]:
        """Waits until a tier has so many pods; which."""

        async def so() -> bool:
            return len(await self.pods(tier)) == count

        try:
            await eventually(so, f"{count} of {tier}", seconds=SECONDS)
        except TimeoutError as error:
            stands = await self.served.api.items(AUTOSCALERS.format(self.served.namespace))
            raise TimeoutError(f"{error}\n{stands}\n{self.served.operator.tail()}") from error
        return await self.pods(tier)

    def recorded(self, metric: str) -> list[float]:
        """What Prometheus has recorded of this resource by a rule of ours."""
        where = f'namespace="{self.served.namespace}",triptych_service="shapes"'
        return [float(one["value"][1]) for one in self.prometheus.query(f"{metric}{{{where}}}")]


@pytest.fixture
async def stage(
    control_plane: ControlPlane,
    prometheus: Prometheus,
    loopback_nodes: str,
    network: str,
    tmp_path: Path,
) -> AsyncIterator[Stage]:
    flags = ("--metrics=keda", f"--prometheus-url={prometheus.url}")
    async with (
        namespace_of_its_own(control_plane) as (api, namespace),
        PodPages(network) as pages,
        OperatorProcess(
            control_plane.kubeconfig, tmp_path / "log", namespace, arguments=flags
        ) as operator,
    ):
        yield Stage(Served(api, namespace, operator), pages, prometheus, loopback_nodes)


async def test_encoders_follow_their_backlog_through_prometheus_and_keda(stage: Stage) -> None:
    await stage.apply()
    address = await stage.address(Tier.ENCODER)
    stage.pages.loads = {address: Load(waiting=4, backlog_tokens=400)}
    await stage.until(Tier.ENCODER, 4)
    (autoscaler,) = await stage.served.api.items(AUTOSCALERS.format(stage.served.namespace))
    assert autoscaler["spec"]["maxReplicas"] == 8
    assert autoscaler["metadata"]["ownerReferences"][0]["kind"] == "ScaledObject"
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == "shapes-encoder"
    stage.pages.loads = {address: Load(waiting=2, backlog_tokens=200)}
    await stage.until(Tier.ENCODER, 2)
    await stage.served.until("Ready", "True")


async def test_encoders_rest_and_wake_by_keda(stage: Stage) -> None:
    await stage.apply(min=2, scaleToZeroAfter="5s")
    gateway = await stage.address(Tier.GATEWAY)
    stage.pages.besides = {gateway: of_gateway(without_encoder=0)}
    await stage.until(Tier.ENCODER, 0)
    await stage.served.until("EncoderReady", "True", "Resting")
    stage.pages.besides = {gateway: of_gateway(without_encoder=1)}
    await stage.until(Tier.ENCODER, 2)
    await stage.served.until("EncoderReady", "True", "PodsReady")


def of_gateway(*, without_encoder: int) -> bytes:
    """What a gateway's page has beside a worker's, as far as rest goes."""
    pictures = f'{Metric.TTFT_SECONDS}_count{{modality="multimodal"}} 0'
    return f"{Metric.WITHOUT_ENCODER} {without_encoder}\n{pictures}\n".encode()


async def test_prometheus_records_every_signal_by_our_rules(stage: Stage) -> None:
    await stage.apply()
    address = await stage.address(Tier.ENCODER)
    stage.pages.loads = {address: Load(running=3, backlog_tokens=70)}

    idle = {signal for signal in (*RATES, *GAUGES) if signal in MEASURED[Tier.FUSED]}
    wanted = {external_metric(Tier.FUSED, signal): [0.0] for signal in idle}
    wanted["triptych_encoder_backlog_tokens"] = [70.0]

    def recorded() -> bool:
        """Pods are scraped one after the other, and rates take two scrapes."""
        return {name: stage.recorded(name) for name in wanted} == wanted

    await eventually(recorded, f"{wanted}", seconds=SECONDS)
    rules = stage.prometheus.rules()
    names = {external_metric(tier, signal) for tier in Tier for signal in MEASURED[tier]}
    assert {rule["name"] for rule in rules} == names
    assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}
