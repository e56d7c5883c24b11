"""The embedded provider before the real API server and the real autoscaler."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from cluster.addresses import own_address
from cluster.api import Api, ApiError, Object
from cluster.certificates import KeyPair
from cluster.control_plane import ControlPlane, free_port
from cluster.operator_process import OperatorProcess
from cluster.waiting import eventually
from control_plane.embedded_metrics import NAME, charted, operator
from control_plane.pod_pages import PodPages, played_by
from mms_builders import manifest
from triptych_operator.desired.naming import DELETION_COST
from triptych_operator.metrics_api.provider import PERIOD
from triptych_worker.domain import Load

API_SERVICE: Final = f"/apis/apiregistration.k8s.io/v1/apiservices/{NAME}"
RESOURCE: Final = "/apis/triptych.dev/v1alpha1/namespaces/{}/multimodalservices/shapes"
SERVED: Final = "/apis/external.metrics.k8s.io/v1beta1"
BACKLOG: Final = "triptych_encoder_backlog_tokens"
SECONDS: Final = 90.0
AT_ONCE: Final = {"scaleDown": {"stabilizationWindowSeconds": 0}}


@dataclass(frozen=True)
class Stage:
    """A namespace with an operator that serves its signals."""

    api: Api
    namespace: str
    pages: PodPages
    operator: OperatorProcess
    nodes: str
    address: str  # host and port of the operator's metrics API

    async def apply(self, **encoder: object) -> None:
        """Has a user apply a resource whose pods answer here."""
        template = played_by(self.nodes)
        tiers = {tier: {"template": template} for tier in ("encoder", "fused", "gateway")}
        tiers["encoder"] |= encoder
        body = manifest(topology="EncodeSplit", tiers=tiers)
        body["metadata"]["name"] = "shapes"
        await self.api.apply(RESOURCE.format(self.namespace), body, manager="user")

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

    async def scaling_conditions(self) -> list[Object]:
        """Those of the encoders' autoscaler; none before it has any."""
        name = f"namespaces/{self.namespace}/horizontalpodautoscalers/shapes-encoder"
        found = await self.api.find(f"/apis/autoscaling/v2/{name}") or {}
        conditions: list[Object] = found.get("status", {}).get("conditions", [])
        return conditions

    async def values(self, metric: str, selector: str = "") -> list[Object]:
        """What the API server hands out of a metric."""
        query = f"?labelSelector={selector}" if selector else ""
        return await self.api.items(f"{SERVED}/namespaces/{self.namespace}/{metric}{query}")

    async def until_values(self, metric: str) -> None:
        """Waits until the API server hands out a value of it."""

        async def look() -> list[Object]:
            try:
                return await self.values(metric)
            except ApiError:
                return []

        try:
            await eventually(look, metric, seconds=SECONDS)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.operator.tail()}") from error

    async def until_scaling_is(self, status: str) -> Object:
        """Waits until the autoscaler says whether it can work; that condition."""

        async def look() -> Object | None:
            active = ("ScalingActive", status)
            conditions = await self.scaling_conditions()
            return next((one for one in conditions if (one["type"], one["status"]) == active), None)

        found = await eventually(look, f"ScalingActive={status}", seconds=SECONDS)
        assert found is not None
        return found

    async def until_it_stays(self, name: str) -> None:
        """Waits until a pod costs more than others: those go before it."""

        async def look() -> bool:
            pods = await self.encoders()
            (annotations,) = (
                pod["metadata"].get("annotations", {})
                for pod in pods
                if pod["metadata"]["name"] == name
            )
            return int(annotations.get(DELETION_COST, "0")) > 0

        await eventually(look, f"a deletion cost of {name}", seconds=SECONDS)

    async def until_limited(self) -> str:
        """Waits until the status names an adapter as what limits the encoders; what it says."""

        async def look() -> str:
            resource = await self.api.get(RESOURCE.format(self.namespace))
            tiers = resource.get("status", {}).get("tiers", ())
            limits = (tier.get("limitedBy", "") for tier in tiers if tier["name"] == "encoder")
            told: str = next(limits, "")
            return told if "belongs to" in told else ""

        return await eventually(look, "an adapter in limitedBy", seconds=SECONDS)

    async def directly(self, pair: KeyPair | None) -> int:
        """The status of an answer to a call past the API server.

        Raises:
            aiohttp.ClientError: the client is not let in.
        """
        trusted = base64.b64decode((await self.api.get(API_SERVICE))["spec"]["caBundle"]).decode()
        tls = ssl.create_default_context(cadata=trusted)
        if pair is not None:
            tls.load_cert_chain(pair.certificate, pair.key)
        name = f"triptych-metrics.{self.namespace}.svc"
        token = {"Authorization": "Bearer e30.e30.e30", "X-Remote-Group": "system:masters"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"https://{self.address}{SERVED}", ssl=tls, server_hostname=name, headers=token
            ) as answer,
        ):
            return answer.status

    async def until_encoders(self, count: int) -> None:
        """Waits until there are so many."""

        async def look() -> bool:
            return len(await self.encoders()) == count

        try:
            await eventually(look, f"{count} encoders", seconds=SECONDS)
        except TimeoutError as error:
            stands = json.dumps(await self.scaling_conditions(), indent=1)
            raise TimeoutError(f"{error}\n{stands}\n{self.operator.tail()}") from error


@pytest.fixture
async def stage(
    control_plane: ControlPlane,
    namespace: str,
    loopback_nodes: str,
    network: str,
    tmp_path: Path,
) -> AsyncIterator[Stage]:
    address = f"{own_address()}:{free_port()}"
    running = operator(control_plane, tmp_path / "operator.log", namespace, address)
    with charted(control_plane, namespace):
        async with Api(control_plane.kubeconfig) as api, PodPages(network) as pages, running:
            yield Stage(api, namespace, pages, running, loopback_nodes, address)


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
    await stage.until_it_stays(pod["metadata"]["name"])
    stage.pages.loads = {pod["status"]["podIP"]: Load(waiting=4, backlog_tokens=200)}
    await stage.until_encoders(2)
    stage.pages.silent = True
    refused = await stage.until_scaling_is("False")
    assert refused["reason"] == "FailedGetExternalMetric"
    assert "no metrics returned from external metrics API" in refused["message"]
    assert await stage.values(BACKLOG) == []
    assert len(await stage.encoders()) == 2
    stage.pages.silent = False
    await stage.until_scaling_is("True")


async def test_where_another_adapter_takes_the_api_the_status_says_so_and_nothing_is_taken_back(
    stage: Stage,
) -> None:
    await stage.apply(autoscaling=scaling("100"))
    await stage.until_scaling_is("True")
    ours = await stage.api.get(API_SERVICE)
    theirs = {"name": "adapter", "namespace": "monitoring", "port": 443}
    taken = {"spec": {"service": theirs, "caBundle": None, "insecureSkipTLSVerify": True}}
    taken = await stage.api.merge(API_SERVICE, taken)
    told = await stage.until_limited()
    assert told.startswith("AutoscalerCannotRead: APIService v1beta1.external.metrics.k8s.io")
    assert "belongs to monitoring/adapter" in told
    assert (await stage.api.get(API_SERVICE))["spec"] == taken["spec"]
    back = {"service": ours["spec"]["service"], "insecureSkipTLSVerify": None}
    await stage.api.merge(API_SERVICE, {"spec": back})
    await stage.until_scaling_is("True")


async def test_the_api_server_alone_gets_at_values_and_asks_who_its_user_is(
    stage: Stage, control_plane: ControlPlane
) -> None:
    await stage.apply(replicas=1)
    await stage.until_encoders(1)
    await stage.until_values(BACKLOG)
    instance = "app.kubernetes.io/instance"
    (value,) = await stage.values(BACKLOG, f"{instance}=shapes,app.kubernetes.io/component=encoder")
    assert (value["metricName"], value["value"]) == (BACKLOG, "0")
    assert value.pop("timestamp"), "of the last look at the pods, which is another one soon"
    assert await stage.values(BACKLOG, f"{instance}=other") == []
    raw = f"{SERVED}/namespaces/{stage.namespace}/{BACKLOG}"
    (again,) = json.loads(control_plane.kubectl("get", "--raw", raw))["items"]
    assert again.pop("timestamp")
    assert again == value
    assert await stage.api.items(f"{SERVED}/namespaces/default/{BACKLOG}") == []
    with pytest.raises(ApiError, match="there is no metric triptych_encoder_other"):
        await stage.values("triptych_encoder_other")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        control_plane.kubectl("get", "--raw", raw, "--as=nobody")
    assert "(Forbidden)" in refused.value.stderr
    await eventually(lambda: is_discovered(control_plane), "its discovery", seconds=SECONDS)

    administrator = control_plane.authority.issue("admin-again", groups=("system:masters",))
    for stranger in (None, administrator):
        with pytest.raises(aiohttp.ClientError):
            await stage.directly(stranger)
    other = control_plane.front_proxy.issue("not-the-front-proxy")
    assert await stage.directly(other) == 403
    assert await stage.directly(control_plane.front_proxy.issue("front-proxy-client")) == 200


def is_discovered(control_plane: ControlPlane) -> bool:
    """Whether kubectl finds the metric among all resources, of which the server makes one document
    of its own now and then."""
    named = control_plane.kubectl("api-resources", "--api-group=external.metrics.k8s.io", "-o=name")
    return f"{BACKLOG}.external.metrics.k8s.io" in named.splitlines()


async def test_when_the_leader_is_lost_the_next_one_serves_and_then_rests(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    users = ("metrics-first", "metrics-second")  # what plays pods writes as the administrator
    first, second = (
        operator(
            control_plane,
            tmp_path / f"{user}.log",
            namespace,
            f"{own_address()}:{free_port()}",
            election=namespace,
            kubeconfig=control_plane.kubeconfig_for(user, groups=("system:masters",)),
        )
        for user in users
    )
    with charted(control_plane, namespace):
        async with Api(control_plane.kubeconfig) as api, first:
            trusted = await until_served(api, first)
            async with second:
                await first.kill()
                assert await until_served(api, second, other_than=trusted) != trusted
                since = control_plane.audit.position()
                await asyncio.sleep(PERIOD + 1)  # for another look at what it has registered
                tried = control_plane.audit.entries(since, user=users[1])
                assert {entry.write.resource for entry in tried} == {"leases"}


async def until_served(api: Api, running: OperatorProcess, other_than: str = "") -> str:
    """Waits until the API is there; the authority that it is trusted by."""

    async def look() -> str:
        found = await api.get(API_SERVICE)
        trusted: str = found["spec"].get("caBundle", "")
        if trusted in ("", other_than):
            return ""
        try:
            await api.get(SERVED)
        except ApiError:
            return ""
        return trusted

    try:
        return await eventually(look, "the API", seconds=SECONDS)
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{running.tail()}") from error
