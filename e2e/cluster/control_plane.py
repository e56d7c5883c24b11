"""A real Kubernetes control plane of one test run: etcd, API server, controllers, scheduler.

Every instance has its own ports, certificates and folder, so several run side by side. Nodes are
not part of it: kwok plays them, or a kubelet joins.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import ssl
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cluster.audit import AuditLog
from cluster.certificates import Authority, KeyPair, service_account_key
from cluster.kubectl import Cluster
from cluster.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

HERE = Path(__file__).parent
READY_SECONDS = 90.0  # a busy 2-core machine takes 10; a hung one should not hold a test run
STOP_SECONDS = 10.0
LOOPBACK = "127.0.0.1"
SERVICE_NETWORK = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"
CONTROLLERS_WITHOUT_NODES = "*,-node-ipam-controller"


def build() -> Path:
    """The folder of the programs, built when their sources have changed."""
    answer = subprocess.run([HERE / "build"], check=True, stdout=subprocess.PIPE, text=True)
    return Path(answer.stdout.strip())


@dataclass(frozen=True)
class Ports:
    """Loopback ports of one control plane."""

    etcd: int
    etcd_peer: int
    api: int
    controllers: int
    scheduler: int

    @staticmethod
    def free() -> Ports:
        """Five ports that nobody else has."""
        return Ports(*(free_port() for _ in range(5)))


class ControlPlane(Cluster):
    """Runs inside a ``with``, or from ``start`` to ``stop``; ``kubeconfig`` is the admin's.

    With ``audited``, the API server keeps a log of all writes, which ``audit`` reads. It listens
    on ``address``; where that is not loopback, pods reach it there. ``flags`` are further ones by
    program, which win over ours.
    """

    def __init__(
        self,
        folder: Path,
        *,
        audited: bool = False,
        address: str = LOOPBACK,
        ports: Ports | None = None,
        flags: Mapping[str, Mapping[str, str | int]] | None = None,
    ) -> None:
        self.folder = folder
        self._flags = flags or {}
        self.address = address
        self.ports = ports or Ports.free()
        self.programs = build()
        self.audit = AuditLog(folder)
        self._audited = audited
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        secrets = folder / "pki"
        self.authority = Authority(secrets, "triptych-test-ca")
        self.front_proxy = Authority(secrets / "front-proxy", "front-proxy-ca")
        self._account_key = service_account_key(secrets)
        self._serving = self.authority.issue(
            "kube-apiserver",
            hosts=(address, "localhost", "kubernetes.default.svc", KUBERNETES_SERVICE),
        )
        self._kubelet_client = self.authority.issue(
            "kube-apiserver-kubelet-client", groups=("system:masters",)
        )
        self._proxy_client = self.front_proxy.issue("front-proxy-client")
        administrator = self.kubeconfig_for("admin", groups=("system:masters",))
        super().__init__(self.programs / "kubectl", administrator)

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://{self.address}:{self.ports.api}"

    def kubeconfig_for(self, user: str, *, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig by which to act as ``user``."""
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        path.write_text(json.dumps(self._kubeconfig(self.authority.issue(user, groups=groups))))
        return path

    def start(self) -> Self:
        """Starts everything and waits until the API server and its default objects are there.

        Raises:
            TimeoutError: a program did not become ready; the message holds the end of its log.
        """
        deadline = time.monotonic() + READY_SECONDS
        self.start_program("etcd", self._etcd())
        self.start_program("kube-apiserver", self._api_server())
        self._wait_ready(deadline)
        self.start_program("kube-controller-manager", self._controllers())
        self.start_program("kube-scheduler", self._scheduler())
        self._wait_default_account(deadline)
        return self

    def stop(self) -> None:
        """Ends everything, the API server before etcd."""
        for name in reversed(list(self._processes)):
            self.stop_program(name)

    def start_program(self, name: str, flags: Mapping[str, str | int]) -> None:
        """Starts one program of the build with ``--flag=value`` arguments; its log is NAME.log."""
        given = {**flags, **self._flags.get(name, {})}
        arguments = [f"--{flag}={value}" for flag, value in given.items()]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [self.programs / name, *arguments],
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
                start_new_session=True,
            )

    def stop_program(self, name: str, with_signal: signal.Signals = signal.SIGTERM) -> None:
        """Ends one program: by ``with_signal``, then by force after some seconds."""
        process = self._processes.pop(name)
        process.send_signal(with_signal)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart_api_server(self) -> None:
        """Stops and starts the API server, as an upgrade of it would."""
        self.stop_program("kube-apiserver")
        self.start_program("kube-apiserver", self._api_server())
        self._wait_ready(time.monotonic() + READY_SECONDS)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _etcd(self) -> dict[str, str | int]:
        clients = f"http://127.0.0.1:{self.ports.etcd}"
        peers = f"http://127.0.0.1:{self.ports.etcd_peer}"
        return {
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "unsafe-no-fsync": "true",  # lives only as long as a test
            "logger": "zap",
        }

    def _api_server(self) -> dict[str, str | int]:
        return {
            "etcd-servers": f"http://127.0.0.1:{self.ports.etcd}",
            "secure-port": self.ports.api,
            "bind-address": self.address,
            **({} if self.address == LOOPBACK else {"advertise-address": self.address}),
            "service-cluster-ip-range": SERVICE_NETWORK,
            "tls-cert-file": str(self._serving.certificate),
            "tls-private-key-file": str(self._serving.key),
            "client-ca-file": str(self.authority.certificate),
            "authorization-mode": "Node,RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": str(self._account_key),
            "service-account-key-file": str(self._account_key),
            "kubelet-certificate-authority": str(self.authority.certificate),
            "kubelet-client-certificate": str(self._kubelet_client.certificate),
            "kubelet-client-key": str(self._kubelet_client.key),
            "kubelet-preferred-address-types": "InternalIP",  # no DNS knows the node's name
            "allow-privileged": "true",
            "enable-aggregator-routing": "true",
            "proxy-client-cert-file": str(self._proxy_client.certificate),
            "proxy-client-key-file": str(self._proxy_client.key),
            "requestheader-client-ca-file": str(self.front_proxy.certificate),
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            **(self.audit.flags() if self._audited else {}),
        }

    def _controllers(self) -> dict[str, str | int]:
        kubeconfig = self.kubeconfig_for("system:kube-controller-manager")
        return {
            "kubeconfig": str(kubeconfig),
            "authentication-kubeconfig": str(kubeconfig),
            "authorization-kubeconfig": str(kubeconfig),
            "secure-port": self.ports.controllers,
            "bind-address": "127.0.0.1",
            "controllers": CONTROLLERS_WITHOUT_NODES,
            "root-ca-file": str(self.authority.certificate),
            "service-account-private-key-file": str(self._account_key),
            "use-service-account-credentials": "true",
            "leader-elect": "false",
            "horizontal-pod-autoscaler-sync-period": "2s",
            "kube-api-qps": 200,  # the default of 20 is for a cluster that others need too
            "kube-api-burst": 400,
        }

    def _scheduler(self) -> dict[str, str | int]:
        kubeconfig = self.kubeconfig_for("system:kube-scheduler")
        return {
            "kubeconfig": str(kubeconfig),
            "authentication-kubeconfig": str(kubeconfig),
            "authorization-kubeconfig": str(kubeconfig),
            "secure-port": self.ports.scheduler,
            "bind-address": "127.0.0.1",
            "leader-elect": "false",
        }

    def _kubeconfig(self, pair: KeyPair) -> dict[str, object]:
        cluster = {"server": self.url, "certificate-authority-data": _base64(self._ca)}
        user = {
            "client-certificate-data": _base64(pair.certificate),
            "client-key-data": _base64(pair.key),
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }

    @property
    def _ca(self) -> Path:
        return self.authority.certificate

    def _wait_ready(self, deadline: float) -> None:
        context = ssl.create_default_context(cafile=str(self._ca))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        while True:
            with contextlib.suppress(OSError), opener.open(f"{self.url}/readyz", timeout=2):
                return
            self._check("kube-apiserver", deadline)
            time.sleep(0.1)

    def _wait_default_account(self, deadline: float) -> None:
        """Pods can be made in the default namespace once its service account exists."""
        while True:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.kubectl("get", "serviceaccount", "default", "-o", "name")
                return
            self._check("kube-controller-manager", deadline)
            time.sleep(0.1)

    def _check(self, name: str, deadline: float) -> None:
        code = self._processes[name].poll()
        if code is None and time.monotonic() < deadline:
            return
        state = f"ended with {code}" if code is not None else "is not ready in time"
        log = (self.folder / f"{name}.log").read_text(errors="replace")
        raise TimeoutError(f"{name} {state}; its log ends:\n{_tail(log.splitlines())}")


def _tail(lines: Sequence[str], count: int = 20) -> str:
    return "\n".join(lines[-count:])


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
