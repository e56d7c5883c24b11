"""With KEDA, tiers have ScaledObjects, which KEDA's own definition on a real API server judges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cluster.api import Api, Object
from cluster.kubectl import Cluster
from cluster.operator_process import OperatorProcess
from cluster.waiting import eventually
from control_plane.served import SECONDS, Served, namespace_of_its_own
from mms_builders import service
from tools.definitions import wait_until_served
from tools.keda import definitions
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import MEASURED
from triptych_operator.desired.difference import is_as_wanted, sealed
from triptych_operator.desired.platform import Metrics, Platform
from triptych_operator.desired.state import desired_state

PATH: Final = "/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects"
ENCODER: Final = "shapes-encoder"
PLATFORM: Final = Platform("worker:1", metrics=Metrics.KEDA)


@pytest.fixture(scope="module")
def keda(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with KEDA's definition. Nothing acts on it: that is KEDA's part."""
    definition = str(definitions() / "keda.sh_scaledobjects.yaml")
    cluster.kubectl("apply", "--server-side", "-f", definition)
    wait_until_served(cluster, "scaledobjects")
    yield cluster
    cluster.kubectl("delete", "-f", definition)


@pytest.fixture
async def one(keda: Cluster, tmp_path: Path) -> AsyncIterator[Served]:
    async with (
        namespace_of_its_own(keda) as (api, namespace),
        OperatorProcess(
            keda.kubeconfig, tmp_path / "log", namespace, arguments=("--metrics=keda",)
        ) as operator,
    ):
        yield Served(api, namespace, operator)


def every_form() -> dict[str, Any]:
    """Autoscaling of a tier by each of its signals, with all that can be said of it."""
    metrics = {
        tier: [{"signal": signal.value, "target": "500m"} for signal in MEASURED[tier]]
        for tier in (Tier.ENCODER, Tier.PREFILL, Tier.DECODE, Tier.GATEWAY)
    }
    external = {"name": "queue:depth", "selector": {"a.b/c": "d"}, "per": "Tier"}
    metrics[Tier.DECODE] += [
        {"signal": "CPUUtilization", "target": 70},
        {"signal": "MemoryUtilization", "target": 70},
        {"signal": "External", "target": 1, "external": external},
    ]
    made: dict[str, Any] = {
        f"tiers__{tier}__autoscaling": {"max": 9, "metrics": given[:7]}
        for tier, given in metrics.items()
    }
    made["tiers__encoder__autoscaling"] |= {
        "scaleToZeroAfter": "10m",
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }
    return {**made, "degraded__onEncoderLoss": "Queue"}


async def scaled_objects(one: Served) -> dict[str, Object]:
    found = await one.api.items(PATH.format(one.namespace))
    return {body["metadata"]["name"]: body for body in found}


async def test_every_form_is_taken_and_kept_as_it_is(keda: Cluster, namespace: str) -> None:
    resource = service(**every_form())
    wanted: list[Any] = [
        sealed(made) for made in desired_state(resource, PLATFORM) if made["kind"] == "ScaledObject"
    ]
    assert len(wanted) == 4
    async with Api(keda.kubeconfig) as api:
        for manifest in wanted:
            manifest["metadata"]["namespace"] = namespace
            path = f"{PATH.format(namespace)}/{manifest['metadata']['name']}"
            stored = await api.apply(path, manifest, manager="triptych", dry_run=True)
            assert is_as_wanted(manifest, stored), stored


async def test_tiers_have_scaled_objects_that_follow_the_balance_and_go(one: Served) -> None:
    balanced: dict[str, Any] = {
        "tiers__encoder__autoscaling": {"min": 1, "max": 9},
        "balance": {"encoderPerPrefill": {"min": 1}},
    }
    await one.apply(tiers__prefill__replicas=3, **balanced)
    await one.until("Ready", "True")

    async def follows() -> bool:
        found = (await scaled_objects(one)).get(ENCODER, {})
        return bool(found and found["spec"]["minReplicaCount"] == 3)

    await eventually(follows, "three encoders at least", seconds=SECONDS)
    assert await one.api.items(one.path("HorizontalPodAutoscaler")) == []

    await one.apply(tiers__encoder__replicas=1)
    await eventually(lambda: _none(one), "its end", seconds=SECONDS)
    await one.until("Ready", "True")


async def _none(one: Served) -> bool:
    return not await scaled_objects(one)
