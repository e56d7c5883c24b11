"""The second process of the node's namespaces (the first reaps): starts everything, and restarts
what it is asked to. ``python -m node.supervisor``, by ``node.sandbox`` alone."""

from __future__ import annotations

import subprocess
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path

from cluster.control_plane import ControlPlane, Ports

from node import control, kubelet, node_network
from node.containerd import PAUSE_IMAGE, Containerd
from node.images import Image
from node.layout import NODE_ADDRESS, NODE_NAME, SERVICE_NETWORK, Layout
from node.processes import CommandError, run, start, stop, wait

HERE = Path(__file__).parent
COREDNS_IMAGE = "triptych.dev/coredns:1"
NODE_SECONDS = 60.0
API_PORT = 6443  # where policies expect it; nobody else listens in the node's namespace
# What programs would leave on the machine goes to memory of the node's own.
_PRIVATE = ("/run", "/var/log", "/var/lib/cni")


class Supervisor:
    """All that runs on the node beside pods. ``state``: starting, ready, or failed and why."""

    def __init__(self, layout: Layout, programs: Path) -> None:
        self.state = "starting"
        self.stopping = threading.Event()
        self._layout = layout
        self._programs = programs
        self._lock = threading.Lock()
        self._containerd = Containerd(layout)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Starts everything, up to a node that is ready and a DNS that answers."""
        resolver = self._layout.run / "resolv.conf"
        resolver.write_text(Path("/etc/resolv.conf").read_text())
        _make_private()
        node_network.configure()
        self._start_containerd()
        self._control_plane = ControlPlane(
            self._layout.control_plane,
            address=NODE_ADDRESS,
            ports=replace(Ports.free(), api=API_PORT),
        )
        self._control_plane.start()
        self._load_images()
        flags = kubelet.kubelet(self._control_plane, self._layout, resolver)
        self._flags = {
            "kubelet": flags,
            "kube-proxy": kubelet.kube_proxy(self._control_plane, self._layout),
        }
        for name, of_it in self._flags.items():
            self._control_plane.start_program(name, of_it)
        manifest = (HERE / "coredns.yaml").read_text()
        self._control_plane.kubectl("apply", "-f", "-", manifest=manifest)
        wait(self._node_is_ready, NODE_SECONDS, f"node {NODE_NAME} is ready")
        self._start_policies()  # it looks its node up once, when it starts
        self._control_plane.kubectl(
            "rollout", "status", "deployment/coredns", "-n", "kube-system", "--timeout=50s"
        )
        self.state = "ready"

    def answer(self, line: str) -> str:
        """Does what a line asks: ``status``, ``stop``, or ``restart NAME``."""
        match line.split():
            case ["status"]:
                return self.state
            case ["stop"]:
                self.stopping.set()
                return "stopping"
            case ["restart", _] if self.state != "ready":
                return f"the node is not up: {self.state}"
            case ["restart", name]:
                with self._lock:
                    return self._restart(name)
        return f"unknown request {line!r}: status, stop, restart NAME"

    def stop(self) -> None:
        """Ends what keeps books on disk; the rest ends with the namespaces."""
        process = self._running.get("containerd")
        if process is not None:
            stop(process)

    def _restart(self, name: str) -> str:
        match name:
            case "kube-apiserver":
                self._control_plane.restart_api_server()
            case "kubelet" | "kube-proxy":
                self._control_plane.stop_program(name)
                self._control_plane.start_program(name, self._flags[name])
            case "containerd":
                stop(self._running.pop(name))
                self._start_containerd()
            case _:
                return f"unknown program {name!r}: kube-apiserver, kubelet, kube-proxy, containerd"
        return "restarted"

    def _start_containerd(self) -> None:
        cni = self._layout.run / "cni"
        if not cni.exists():
            node_network.write_cni(cni, self._layout.run / "pod-addresses")
        first = not self._running
        self._running["containerd"] = self._containerd.start(cni)
        if first and self._containerd.forget_containers():
            stop(self._running.pop("containerd"))  # it read its books before they were put right
            self._running["containerd"] = self._containerd.start(cni)

    def _start_policies(self) -> None:
        administrator = self._control_plane.kubeconfig
        command = (self._programs / "policies", administrator, NODE_NAME, SERVICE_NETWORK)
        self._running["policies"] = start(command, self._layout.run / "policies.log")

    def _load_images(self) -> None:
        for name, program in ((PAUSE_IMAGE, "pause"), (COREDNS_IMAGE, "coredns")):
            self._containerd.load(Image.of_program(name, self._programs / program))

    def _node_is_ready(self) -> bool:
        condition = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        try:
            return self._control_plane.kubectl("get", "node", NODE_NAME, "-o", condition) == "True"
        except subprocess.CalledProcessError:  # it has not registered yet
            return False


def _make_private() -> None:
    run("mount", "--make-rshared", "/")
    for folder in _PRIVATE:
        Path(folder).mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "node", folder)
    Path("/run/lock").mkdir()


def main() -> None:
    """Runs until ``stop`` is asked for."""
    supervisor = Supervisor(Layout(Path(sys.argv[1])), Path(sys.argv[2]))
    control.serve(Layout(Path(sys.argv[1])).control_socket, supervisor.answer)
    try:
        supervisor.start()
    except (CommandError, OSError, subprocess.SubprocessError) as error:
        traceback.print_exc()
        detail = getattr(error, "stderr", None) or str(error)
        supervisor.state = f"failed: {detail.strip().splitlines()[-1]}"
    supervisor.stopping.wait()
    supervisor.stop()


if __name__ == "__main__":
    main()
