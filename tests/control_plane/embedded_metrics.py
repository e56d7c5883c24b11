"""The operator with the metrics API in it, and what the chart makes so that autoscalers find it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cluster.control_plane import ControlPlane
from cluster.operator_process import OperatorProcess

NAME: Final = "v1beta1.external.metrics.k8s.io"


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


@contextlib.contextmanager
def charted(control_plane: ControlPlane, namespace: str) -> Iterator[None]:
    """The chart's objects for as long as it lasts: a cluster has one such API."""
    items = {"apiVersion": "v1", "kind": "List", "items": front(namespace)}
    control_plane.kubectl("apply", "-f", "-", manifest=json.dumps(items))
    try:
        yield
    finally:
        control_plane.kubectl("delete", "apiservice", NAME)


def operator(
    control_plane: ControlPlane,
    log: Path,
    namespace: str,
    address: str,
    *,
    election: str = "",
    kubeconfig: Path | None = None,
) -> OperatorProcess:
    """One that serves at ``address``, as the administrator unless by ``kubeconfig``."""
    flags = (f"--metrics-service={namespace}/triptych-metrics", f"--metrics-address={address}")
    return OperatorProcess(
        kubeconfig or control_plane.kubeconfig,
        log,
        namespace,
        arguments=flags,
        election=election,
        asks_pods=True,
    )
