"""metrics-server beside the node, so that autoscalers know the CPU of pods.

It runs on this machine, not in a pod: the node has no registry to pull its image from.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.kubectl import Cluster
from tools.programs import program

from node import processes
from node.layout import HOST_ADDRESS

PORT = 10_350
RESOLUTION_SECONDS = 10  # the least that it takes
SERVED_SECONDS = 120.0  # it tells of a pod once it has measured it twice
_NAMESPACE = "kube-system"
_NAME = "metrics-server"
_GROUP = "metrics.k8s.io"
_RAW = f"/apis/{_GROUP}/v1beta1/nodes"


@contextmanager
def metrics_server(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Serves ``metrics.k8s.io`` within the block; ``folder`` takes its log and its certificate.

    Raises:
        CommandError: it ended.
        TimeoutError: it does not tell of the node in time.
    """
    log = folder / "metrics-server.log"
    server = processes.start(_command(cluster, folder), log)
    try:
        cluster.kubectl("apply", "-f", "-", manifest=_manifests())
        processes.wait(
            lambda: server.poll() is not None or _tells(cluster), SERVED_SECONDS, "node metrics"
        )
        if server.poll() is not None:
            raise processes.CommandError(f"metrics-server ended: {log.read_text()[-1000:]}")
        yield
    finally:
        cluster.kubectl("delete", "-f", "-", "--ignore-not-found", manifest=_manifests())
        processes.stop(server)


def _command(cluster: Cluster, folder: Path) -> list[str | Path]:
    kubeconfig = cluster.kubeconfig
    return [
        program("metrics-server"),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={HOST_ADDRESS}",
        f"--secure-port={PORT}",
        f"--cert-dir={folder}",
        "--kubelet-insecure-tls",  # the kubelet's certificate is its own
        "--kubelet-preferred-address-types=InternalIP",
        f"--metric-resolution={RESOLUTION_SECONDS}s",
        f"--kubelet-request-timeout={RESOLUTION_SECONDS // 2}s",
    ]


def _tells(cluster: Cluster) -> bool:
    try:
        return bool(json.loads(cluster.kubectl("get", "--raw", _RAW))["items"])
    except subprocess.CalledProcessError:
        return False


def _manifests() -> str:
    """How the API server gets to it: an APIService, a Service without pods, and its one address."""
    metadata = {"name": _NAME, "namespace": _NAMESPACE}
    ports = [{"name": "https", "port": 443, "targetPort": PORT}]
    slice_metadata = metadata | {"labels": {"kubernetes.io/service-name": _NAME}}
    items = [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": slice_metadata,
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": PORT}],
            "endpoints": [{"addresses": [HOST_ADDRESS], "conditions": {"ready": True}}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1beta1.{_GROUP}"},
            "spec": {
                "group": _GROUP,
                "version": "v1beta1",
                "service": {"name": _NAME, "namespace": _NAMESPACE},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
