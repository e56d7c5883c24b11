"""Brings the node up and down, from outside of it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from cluster import control_plane
from cluster.kubectl import Cluster

from node import control, host_network, pods, sandbox
from node.containerd import Containerd
from node.images import Image
from node.layout import Layout
from node.processes import POLL_SECONDS, run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGES = (
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "ethtool",
    "iproute2",
    "ipset",
    "iptables",
    "runc",
    "socat",
    "tini",
)
UP_SECONDS = 180.0  # a busy 2-core machine takes 30
STOP_SECONDS = 30.0
BUILD_SECONDS = 1500.0


class NodeError(Exception):
    """The node cannot do what was asked; the message says why."""


class OneNode(Cluster):
    """A cluster of one node on this machine. It outlives this process: ``down`` ends it."""

    def __init__(self, layout: Layout | None = None) -> None:
        if os.geteuid() != 0:
            raise NodeError("the node needs root: it makes namespaces, mounts and interfaces")
        self.layout = layout or Layout.default()
        run(ROOT / "hack/debian-packages", *PACKAGES, seconds=BUILD_SECONDS)
        self._programs = Path(run(HERE / "programs/build", seconds=BUILD_SECONDS).strip())
        self._containerd = Containerd(self.layout)
        super().__init__(control_plane.build() / "kubectl", self.layout.kubeconfig)

    @property
    def state(self) -> str:
        """``down``, ``starting``, ``ready``, or ``failed`` and why."""
        if sandbox.alive(self.layout) is None:
            return "down"
        try:
            return control.ask(self.layout.control_socket, "status")
        except OSError:
            return "starting"

    def up(self) -> None:
        """Starts the node and waits until pods can run; nothing if it is up.

        Raises:
            NodeError: it does not come up; it is down again then, and its logs are kept.
        """
        if self.state == "ready":
            return
        self.down()
        host_network.check_free()
        shutil.rmtree(self.layout.run, ignore_errors=True)
        self.layout.run.mkdir(parents=True)
        try:
            process = sandbox.enter(self.layout, self._programs)
            host_network.connect(process, self._previous)
            self._wait_ready()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Ends the node and takes away all that it made, except images and logs; nothing if it is
        down already."""
        if sandbox.alive(self.layout) is not None:
            self._ask_to_stop()
        sandbox.end(self.layout)
        host_network.remove(self._previous)

    def restart(self, program: str) -> None:
        """Restarts kubelet, kube-apiserver, kube-proxy or containerd; pods stay.

        Raises:
            NodeError: no such program, or it does not come up.
        """
        answer = control.ask(self.layout.control_socket, f"restart {program}")
        if answer != "restarted":
            raise NodeError(answer or f"{program} does not come up; see {self.layout.log}")

    def load(self, image: Image) -> int:
        """Brings an image to the node; gives the bytes that were not there yet."""
        return self._containerd.load(image)

    def tag(self, name: str, other: str) -> None:
        """Has an image of the node known by another name too."""
        self._containerd.tag(name, other)

    def pod_logs(self, pod: str, pod_uid: str, namespace: str = "default") -> Path:
        """The folder in which a folder per container holds its logs; gone when the pod is."""
        return self.layout.pod_logs / f"{namespace}_{pod}_{pod_uid}"

    def kill(self, pod_uid: str) -> None:
        """Ends the program of a pod as a crash does, by SIGKILL; its kubelet starts it again.

        Raises:
            NodeError: no container of such a pod runs.
        """
        running = pods.programs(pod_uid)
        if not running:
            raise NodeError(f"no program of pod {pod_uid} runs")
        for process in running:
            os.kill(process, signal.SIGKILL)

    @property
    def _previous(self) -> Path:
        return self.layout.root / "ip-forward-before"

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + UP_SECONDS
        while (state := self.state) != "ready":
            if state != "starting" or time.monotonic() > deadline:
                logs = f"{self.layout.run} and {self.layout.control_plane}"
                raise NodeError(f"the node does not come up ({state}); logs are in {logs}")
            time.sleep(POLL_SECONDS)

    def _ask_to_stop(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        try:
            control.ask(self.layout.control_socket, "stop")
        except OSError:
            return  # it never came that far: it is killed
        while sandbox.alive(self.layout) is not None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
