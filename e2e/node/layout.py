"""Where the node keeps its files, and the names and addresses that it goes by."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NODE_NAME: Final = "triptych-node"
CGROUP: Final = "triptych-node"
HOST_INTERFACE: Final = "triptych0"
NODE_INTERFACE: Final = "eth0"
BRIDGE: Final = "pods0"

# Two addresses of one cable between the machine and the node.
HOST_ADDRESS: Final = "10.245.0.1"
NODE_ADDRESS: Final = "10.245.0.2"
LINK_NETWORK: Final = "10.245.0.0/30"
POD_NETWORK: Final = "10.244.0.0/16"
POD_GATEWAY: Final = "10.244.0.1"
SERVICE_NETWORK: Final = "10.96.0.0/16"
DNS_SERVICE: Final = "10.96.0.10"


@dataclass(frozen=True)
class Layout:
    """Folders of one node. ``run`` lasts from up to down; ``containerd`` keeps the images."""

    root: Path

    @staticmethod
    def default() -> Layout:
        """Beside everything else that is kept between runs."""
        cache = os.environ.get("TRIPTYCH_CACHE") or Path.home() / ".cache/triptych"
        return Layout(Path(cache) / "node")

    @property
    def containerd(self) -> Path:
        """containerd's root."""
        return self.root / "containerd"

    @property
    def run(self) -> Path:
        """Everything of one up: configuration, keys, sockets, logs."""
        return self.root / "run"

    @property
    def containerd_socket(self) -> Path:
        """Where containerd answers, also to the machine outside of the node."""
        return self.run / "containerd.sock"

    @property
    def control_socket(self) -> Path:
        """Where the supervisor answers."""
        return self.run / "control.sock"

    @property
    def control_plane(self) -> Path:
        """Folder of the control plane, and of the logs of its programs and of the kubelet's."""
        return self.run / "control-plane"

    @property
    def pod_logs(self) -> Path:
        """The kubelet's folder of the logs of pods."""
        return self.run / "pod-logs"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.control_plane / "admin.kubeconfig"

    @property
    def pid(self) -> Path:
        """Holds the process that holds the namespaces."""
        return self.run / "pid"

    @property
    def log(self) -> Path:
        """The supervisor's log."""
        return self.run / "supervisor.log"
