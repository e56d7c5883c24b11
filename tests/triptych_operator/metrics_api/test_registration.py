"""The API server's way to the replica that serves, and nobody else's way blocked."""

from __future__ import annotations

import base64
import logging
from dataclasses import replace
from typing import Any

import pytest
from api_server import ApiServer
from metrics_api.fronts import FRONT, api_service, put_chart
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.kinds import ENDPOINT_SLICE, METRICS_API, SERVICE
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.metrics_api.registration import API_SERVICE, Registration

AUTHORITY = b"-----BEGIN CERTIFICATE-----"
TRUSTED = base64.b64encode(AUTHORITY).decode()


def standing(server: ApiServer) -> dict[str, Any]:
    found = server.get(METRICS_API, "", API_SERVICE)
    assert found is not None
    return found


async def test_this_replica_becomes_trusted_and_the_only_endpoint(
    server: ApiServer, api: Api
) -> None:
    put_chart(server)
    registration = Registration(api, FRONT, AUTHORITY)
    await registration.check()
    assert registration.problem == ""
    assert standing(server)["spec"] == {**api_service()["spec"], "caBundle": TRUSTED}
    slice_ = server.get(ENDPOINT_SLICE, FRONT.namespace, FRONT.name)
    assert slice_ is not None
    assert slice_["addressType"] == "IPv4"
    assert slice_["endpoints"] == [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}]
    assert slice_["ports"] == [{"name": "metrics-api", "port": 10250, "protocol": "TCP"}]
    assert slice_["metadata"]["labels"]["kubernetes.io/service-name"] == FRONT.name
    (owner,) = slice_["metadata"]["ownerReferences"]
    service = server.get(SERVICE, FRONT.namespace, FRONT.name)
    assert service is not None
    assert (owner["kind"], owner["uid"]) == ("Service", service["metadata"]["uid"])


async def test_a_second_look_writes_nothing(server: ApiServer, api: Api) -> None:
    put_chart(server)
    registration = Registration(api, FRONT, AUTHORITY)
    await registration.check()
    before = list(server.writes)
    await registration.check()
    assert server.writes == before


async def test_the_next_replica_takes_over(server: ApiServer, api: Api) -> None:
    put_chart(server)
    await Registration(api, FRONT, AUTHORITY).check()
    await Registration(api, replace(FRONT, address="fd00::5", port=6443), b"other").check()
    assert standing(server)["spec"]["caBundle"] == base64.b64encode(b"other").decode()
    slice_ = server.get(ENDPOINT_SLICE, FRONT.namespace, FRONT.name)
    assert slice_ is not None
    assert slice_["endpoints"][0]["addresses"] == ["fd00::5"]
    assert slice_["ports"][0]["port"] == 6443


async def test_what_others_reset_is_mended(server: ApiServer, api: Api) -> None:
    put_chart(server)
    registration = Registration(api, FRONT, AUTHORITY)
    await registration.check()
    metadata = {"namespace": FRONT.namespace, "name": FRONT.name}
    server.put(ENDPOINT_SLICE, {"metadata": metadata, "endpoints": []})
    emptied = {"metadata": {"name": API_SERVICE}, "spec": {"caBundle": ""}}
    server.put(METRICS_API, emptied)
    await registration.check()
    assert standing(server)["spec"]["caBundle"] == TRUSTED
    slice_ = server.get(ENDPOINT_SLICE, FRONT.namespace, FRONT.name)
    assert slice_ is not None
    assert slice_["endpoints"][0]["addresses"] == ["10.1.2.3"]


@pytest.mark.parametrize(
    ("namespace", "name"),
    [("keda", "keda-operator-metrics-apiserver"), ("other", FRONT.name), (FRONT.namespace, "x")],
)
async def test_what_belongs_to_another_adapter_is_left_alone(
    server: ApiServer,
    api: Api,
    caplog: pytest.LogCaptureFixture,
    namespace: str,
    name: str,
) -> None:
    put_chart(server)
    server.put(METRICS_API, api_service(namespace, name))
    before = standing(server)
    registration = Registration(api, FRONT, AUTHORITY)
    with caplog.at_level(logging.INFO):
        await registration.check()
        await registration.check()
    assert server.writes == []
    assert standing(server) == before
    assert f"belongs to {namespace}/{name}" in registration.problem
    assert [one for one in caplog.messages if name in one] == [caplog.messages[0]]  # told once
    server.put(METRICS_API, api_service())
    await registration.check()
    assert registration.problem == ""
    assert standing(server)["spec"]["caBundle"] == TRUSTED


async def test_one_that_the_api_server_serves_itself_is_another_s(
    server: ApiServer, api: Api
) -> None:
    server.put(METRICS_API, {"metadata": {"name": API_SERVICE}, "spec": {"service": None}})
    registration = Registration(api, FRONT, AUTHORITY)
    await registration.check()
    assert "belongs to the API server" in registration.problem
    assert server.writes == []


async def test_without_an_api_service_it_says_what_is_missing_and_makes_none(
    server: ApiServer, api: Api
) -> None:
    registration = Registration(api, FRONT, AUTHORITY)
    await registration.check()
    assert "there is no APIService v1beta1.external.metrics.k8s.io" in registration.problem
    assert server.writes == []


async def test_an_api_server_that_is_too_old_is_told_of_and_found_again_once_upgraded(
    server: ApiServer, api: Api
) -> None:
    put_chart(server)
    server.kubernetes = "v1.33.5-gke.1080000"
    registration = Registration(api, FRONT, AUTHORITY)
    await registration.check()
    assert "v1.33.5-gke.1080000 cannot call the operator" in registration.problem
    assert "1.34 or newer" in registration.problem
    assert "prometheus, keda or none" in registration.problem
    assert server.writes == []
    server.kubernetes = "v1.34.0"
    await registration.check()
    assert registration.problem == ""
    assert len(server.writes) == 2


async def test_an_adapter_that_comes_in_between_is_not_given_our_trust(
    server: ApiServer, api: Api
) -> None:
    put_chart(server)

    async def meanwhile(call: Any) -> None:
        if call.text.startswith("PATCH APIService"):
            server.faults.clear()
            server.put(METRICS_API, api_service("keda", "adapter"))

    server.faults.append(meanwhile)
    registration = Registration(api, FRONT, AUTHORITY)
    with pytest.raises(Refusal, match="modified"):
        await registration.check()
    assert "caBundle" not in standing(server)["spec"]
    await registration.check()
    assert "belongs to keda/adapter" in registration.problem
