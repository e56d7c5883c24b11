"""How the API server finds this replica: the APIService's trust, and the Service's one endpoint.

The chart makes both objects and owns them, so that they go with it: an APIService without a server
behind it holds up the deletion of namespaces. Only the replica that leads serves, for only it
watches, so it is the only endpoint, and only its own authority is trusted. An APIService that
points elsewhere belongs to another adapter, and is left alone.
"""

from __future__ import annotations

import base64
import ipaddress
import logging
from collections.abc import Mapping
from typing import Final

from triptych_operator.cluster.answers import Object
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.kinds import ENDPOINT_SLICE, METRICS_API, SERVICE
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.desired.naming import OPERATOR_NAME
from triptych_operator.json_values import Json, JsonObject
from triptych_operator.metrics_api.answers import GROUP, VERSION
from triptych_operator.metrics_api.front import Front
from triptych_operator.metrics_api.server_versions import PATH, too_old

API_SERVICE: Final = f"{VERSION}.{GROUP}"
PORT_NAME: Final = "metrics-api"  # of the Service's port, by which the endpoint's is found
_MANAGER: Final = "triptych-metrics"  # owner of what is applied here, beside the chart's tool
_logger = logging.getLogger(__name__)


class Registration:
    """Keeps the API server's way to this replica open."""

    def __init__(self, api: Api, front: Front, authority: bytes) -> None:
        self._api = api
        self._front = front
        self._authority = base64.b64encode(authority).decode()
        self._problem = ""
        self._new_enough = False

    @property
    def problem(self) -> str:
        """Why autoscalers do not get at the signals, or nothing."""
        return self._problem

    async def check(self) -> None:
        """Looks whether the API server still finds this replica, and mends what is ours to mend.

        Raises:
            Refusal: the API server refused something.
        """
        found = await self._api.find(METRICS_API, None, API_SERVICE)
        problem = _problem_of(found, self._front) or await self._too_old()
        if problem and problem != self._problem:
            _logger.warning("signals are not served to autoscalers: %s", problem)
        elif self._problem and not problem:
            _logger.info("signals are served to autoscalers again")
        self._problem = problem
        if found is None or problem:
            return
        if found["spec"].get("caBundle") != self._authority:
            await self._api.apply(METRICS_API, _trust(found, self._authority), manager=_MANAGER)
        await self._point_here()

    async def _too_old(self) -> str:
        """Asks until it is new enough: control planes are upgraded while we run."""
        if self._new_enough:
            return ""
        try:
            problem = too_old(await self._api.read(PATH))
        except Refusal as refused:
            if refused.passes:
                raise
            problem = ""  # whoever may not ask finds out by trying
        self._new_enough = not problem
        return problem

    async def _point_here(self) -> None:
        front = self._front
        wanted = _endpoint(front)
        found = await self._api.find(ENDPOINT_SLICE, front.namespace, front.name)
        if found is None or any(found.get(key) != wanted[key] for key in ("endpoints", "ports")):
            service = await self._api.find(SERVICE, front.namespace, front.name)
            owners = [_owner(service)] if service is not None else []
            manifest = {**wanted, "metadata": _metadata(front, owners)}
            await self._api.apply(ENDPOINT_SLICE, manifest, manager=_MANAGER)


def _problem_of(found: Object | None, front: Front) -> str:
    if found is None:
        return (
            f"there is no APIService {API_SERVICE}: install the chart's, or choose another provider"
        )
    service: Mapping[str, object] = found["spec"].get("service") or {}
    if (service.get("namespace"), service.get("name")) == (front.namespace, front.name):
        return ""
    owner = f"{service.get('namespace')}/{service.get('name')}" if service else "the API server"
    return (
        f"APIService {API_SERVICE} belongs to {owner}: remove that adapter, or let it serve the "
        "signals (autoscaling.provider of the chart)"
    )


def _trust(found: Object, authority: str) -> JsonObject:
    """The APIService as trusting ``authority``, if nobody has changed it since."""
    version = found["metadata"]["resourceVersion"]
    return {
        "apiVersion": METRICS_API.api_version,
        "kind": METRICS_API.name,
        "metadata": {"name": API_SERVICE, "resourceVersion": version},
        "spec": {"caBundle": authority},
    }


def _endpoint(front: Front) -> JsonObject:
    """This replica as the Service's only endpoint."""
    return {
        "apiVersion": ENDPOINT_SLICE.api_version,
        "kind": ENDPOINT_SLICE.name,
        "addressType": f"IPv{ipaddress.ip_address(front.address).version}",
        "endpoints": [{"addresses": [front.address], "conditions": {"ready": True}}],
        "ports": [{"name": PORT_NAME, "port": front.port, "protocol": "TCP"}],
    }


def _metadata(front: Front, owners: list[Json]) -> JsonObject:
    return {
        "name": front.name,
        "namespace": front.namespace,
        "labels": {
            "kubernetes.io/service-name": front.name,
            "endpointslice.kubernetes.io/managed-by": OPERATOR_NAME,
        },
        "ownerReferences": owners,
    }


def _owner(service: Object) -> Json:
    """The Service, with which its endpoint goes."""
    metadata = service["metadata"]
    return {
        "apiVersion": "v1",
        "kind": SERVICE.name,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
