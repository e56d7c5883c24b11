"""Nodes and pods that kwok plays, so that Deployments get pods without a machine to run them.

A pod is ready at once, or plays what its annotations say (``stages.yaml`` lists them).
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

    from cluster.kubectl import Cluster

HERE = Path(__file__).parent / "kwok"
NODE_LABEL: Final = "kwok.triptych.dev/node"  # its value: which kwok plays the node
NETWORK: Final = "10.64.0.0/10"
PLAYS: Final = "kwok.triptych.dev/plays"
READY_AFTER: Final = "kwok.triptych.dev/ready-after"
ENDS_AFTER: Final = "kwok.triptych.dev/ends-after"
LAST_WORDS: Final = "kwok.triptych.dev/last-words"
READY_SECONDS = 60.0
STOP_SECONDS = 10.0


class Plays(StrEnum):
    """What a pod plays by its annotation ``PLAYS``; without one it is ready."""

    NEVER_READY = "NeverReady"
    IMAGE_PULL = "ImagePullBackOff"
    CRASH_LOOP = "CrashLoopBackOff"  # the last line of its log is in the annotation LAST_WORDS


def build() -> Path:
    """The program, built when its version has changed."""
    answer = subprocess.run([HERE / "build"], check=True, stdout=subprocess.PIPE, text=True)
    return Path(answer.stdout.strip())


class Kwok:
    """Plays ``nodes`` nodes of a cluster while inside a ``with``, or from ``start`` to ``stop``.

    Several of other names may play in one cluster. Pods have addresses of ``network``: nobody is
    there, unless it is one of loopback. Only pods that tolerate the node's label as a taint go to
    ``reserved`` nodes.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *,
        nodes: int = 2,
        name: str = "kwok",
        network: str = NETWORK,
        reserved: bool = False,
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._network = network
        self._reserved = reserved
        self._log = folder / f"{name}.log"
        self._home = folder
        self._names = [f"{name}-{number}" for number in range(nodes)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Makes the nodes and waits until they are ready.

        Raises:
            TimeoutError: they did not become ready; the message holds the end of kwok's log.
        """
        nodes = {
            "apiVersion": "v1",
            "kind": "List",
            "items": [self._node(name) for name in self._names],
        }
        self._cluster.kubectl("apply", "-f", "-", manifest=json.dumps(nodes))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self._home)},
                start_new_session=True,
            )
        self._wait_ready(time.monotonic() + READY_SECONDS)
        return self

    def stop(self) -> None:
        """Ends kwok. Its nodes stay, to become NotReady by themselves."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

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

    def _command(self) -> list[str | Path]:
        return [
            build(),
            f"--kubeconfig={self._cluster.kubeconfig}",
            f"--config={HERE / 'stages.yaml'}",
            f"--manage-nodes-with-label-selector={NODE_LABEL}={self._name}",
            f"--cidr={self._network}",
            "--node-lease-duration-seconds=40",
        ]

    def _wait_ready(self, deadline: float) -> None:
        while True:
            listed = json.loads(
                self._cluster.kubectl(
                    "get", "nodes", f"--selector={NODE_LABEL}={self._name}", "-o=json"
                )
            )
            if sum(_is_ready(node) for node in listed["items"]) >= len(self._names):
                return
            code = self._process.poll() if self._process is not None else None
            if code is not None or time.monotonic() > deadline:
                tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])
                state = "nodes are not ready in time" if code is None else f"ended with {code}"
                raise TimeoutError(f"kwok: {state}; its log ends:\n{tail}")
            time.sleep(0.2)

    def _node(self, name: str) -> dict[str, object]:
        labels = {
            NODE_LABEL: self._name,
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
        }
        taint = {"key": NODE_LABEL, "value": self._name, "effect": "NoSchedule"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": [taint] if self._reserved else []},
        }


def _is_ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
