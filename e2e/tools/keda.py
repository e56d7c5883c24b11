"""KEDA's operator and its metrics adapter, as processes beside a control plane."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cluster.addresses import own_address
from cluster.certificates import Authority
from cluster.control_plane import LOOPBACK
from cluster.kubectl import Cluster
from cluster.ports import free_port
from node.processes import stop
from tools.definitions import wait_until_served
from tools.programs import program, sources

MODULE: Final = "github.com/kedacore/keda/v2"
NAMESPACE: Final = "keda"
_ADAPTER: Final = "keda-metrics-apiserver"
_OPERATOR: Final = "keda-operator"
_API: Final = "v1beta1.external.metrics.k8s.io"


def definitions() -> Path:
    """The folder of KEDA's resource definitions."""
    return sources(_OPERATOR, MODULE) / "config/crd/bases"


class Keda:
    """Runs inside a ``with``, and is the cluster's adapter of external metrics for as long."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._address = own_address()
        self._port = free_port()
        self._authority = Authority(folder / "pki", "keda-ca")
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._cluster.kubectl("apply", "--server-side", "-f", str(definitions()))
        wait_until_served(self._cluster, "scaledobjects", "scaledjobs", "triggerauthentications")
        self._cluster.kubectl("apply", "-f", "-", manifest=self._manifests())
        try:
            self._start_both()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        if error is not None:
            for name in (_OPERATOR, "keda-adapter"):
                log = (self._folder / f"{name}.log").read_text(errors="replace")
                error.add_note(f"{name}'s log ends:\n{log[-3000:]}")

    def _start_both(self) -> None:
        secrets = self._secrets()
        grpc = f"{LOOPBACK}:{free_port()}"
        self._start(
            _OPERATOR,
            f"--cert-dir={secrets}",
            f"--metrics-service-bind-address={grpc}",
            f"--metrics-bind-address={LOOPBACK}:{free_port()}",
            f"--health-probe-bind-address={LOOPBACK}:{free_port()}",
        )
        self._start(
            "keda-adapter",
            f"--cert-dir={secrets}",
            f"--tls-cert-file={secrets / 'tls.crt'}",
            f"--tls-private-key-file={secrets / 'tls.key'}",
            f"--metrics-service-address={grpc}",
            f"--bind-address={self._address}",
            f"--secure-port={self._port}",
            f"--port={free_port()}",
            *(
                f"--{use}-kubeconfig={self._cluster.kubeconfig}"
                for use in ("lister", "authentication", "authorization")
            ),
        )

    def _start(self, name: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [program(name), *arguments],
                    stdout=log,
                    stderr=log,
                    env={
                        "PATH": os.environ["PATH"],
                        "HOME": str(self._folder),
                        "KUBECONFIG": str(self._cluster.kubeconfig),
                        "WATCH_NAMESPACE": "",
                        "POD_NAMESPACE": NAMESPACE,
                        "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
                    },
                    start_new_session=True,
                )
            )

    def _stop(self) -> None:
        for process in self._processes:
            stop(process)
        self._cluster.kubectl("delete", "apiservice", _API, "--ignore-not-found")
        self._cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")

    def _secrets(self) -> Path:
        """The folder by which the two know each other, and the API server the adapter."""
        hosts = (LOOPBACK, f"{_ADAPTER}.{NAMESPACE}.svc")
        pair = self._authority.issue("keda", hosts=hosts)
        folder = self._folder / "certs"
        folder.mkdir()
        for name, path in (
            ("ca.crt", self._authority.certificate),
            ("tls.crt", pair.certificate),
            ("tls.key", pair.key),
        ):
            shutil.copy(path, folder / name)
        return folder

    def _manifests(self) -> str:
        """How the API server gets to the adapter: an APIService, a Service without pods, and its
        one address."""
        metadata = {"name": _ADAPTER, "namespace": NAMESPACE}
        ports = [{"name": "https", "port": 443, "targetPort": self._port}]
        trusted = base64.b64encode(self._authority.certificate.read_bytes()).decode()
        items = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}},
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {**metadata, "labels": {"kubernetes.io/service-name": _ADAPTER}},
                "addressType": "IPv4",
                "ports": [{"name": "https", "port": self._port}],
                "endpoints": [{"addresses": [self._address], "conditions": {"ready": True}}],
            },
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": _API},
                "spec": {
                    "group": "external.metrics.k8s.io",
                    "version": "v1beta1",
                    "service": {"name": _ADAPTER, "namespace": NAMESPACE},
                    "caBundle": trusted,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                },
            },
        ]
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
