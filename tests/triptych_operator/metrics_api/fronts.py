"""What the API server has of the metrics API, as the chart and kube-apiserver make it."""

from __future__ import annotations

from typing import Any, Final

from api_server import ApiServer
from triptych_operator.cluster.kinds import CONFIG_MAP, METRICS_API, SERVICE
from triptych_operator.metrics_api.front import Front
from triptych_operator.metrics_api.registration import API_SERVICE

FRONT: Final = Front("triptych-system", "triptych-metrics", "10.1.2.3", 10250)


def api_service(namespace: str = FRONT.namespace, name: str = FRONT.name) -> dict[str, Any]:
    service = {"namespace": namespace, "name": name, "port": 443}
    spec = {"group": "external.metrics.k8s.io", "version": "v1beta1", "service": service}
    return {"metadata": {"name": API_SERVICE}, "spec": spec}


def put_chart(server: ApiServer) -> None:
    """The Service and the APIService."""
    metadata = {"namespace": FRONT.namespace, "name": FRONT.name}
    server.put(SERVICE, {"metadata": metadata, "spec": {"ports": [{"port": 443}]}})
    server.put(METRICS_API, api_service(), manager="helm")


def put_front_proxy(server: ApiServer, authority: str) -> None:
    """What the API server says of its front proxy."""
    data = {
        "requestheader-client-ca-file": authority,
        "requestheader-allowed-names": '["front-proxy-client"]',
    }
    metadata = {"namespace": "kube-system", "name": "extension-apiserver-authentication"}
    server.put(CONFIG_MAP, {"metadata": metadata, "data": data})
