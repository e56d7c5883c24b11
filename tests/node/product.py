"""The whole product on the node: the chart installed, and a service that the operator made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.one_node import ROOT, OneNode
from tools.programs import CHART, Helm

SYSTEM = "triptych-system"
READY_SECONDS = 600.0  # processes load torch on two cores; an idle machine takes 30
DEMO_SECONDS = 1500.0
EXAMPLE = CHART.parents[1] / "examples/shapes.yaml"

Object = dict[str, Any]


@dataclass(frozen=True)
class Product:
    """A node with the operator on it."""

    node: OneNode
    helm: Helm

    def install(self) -> None:
        """Installs the chart with the images of this checkout, and waits for the operator."""
        self.helm.run(
            *("install", "triptych", CHART, "--namespace", SYSTEM, "--create-namespace"),
            *("--set", "replicas=1", "--wait", "--timeout", "110s"),
        )

    def upgrade(self, *values: str) -> None:
        """Upgrades the release with further ``values``, and waits for the operator."""
        given = [part for value in values for part in ("--set", value)]
        self.helm.run(
            *("upgrade", "triptych", CHART, "--namespace", SYSTEM, "--reset-then-reuse-values"),
            *given,
            *("--wait", "--timeout", "110s"),
        )

    def uninstall(self) -> None:
        self.helm.run("uninstall", "triptych", "--namespace", SYSTEM, "--wait")

    def remove(self) -> None:
        """Deletes every service, and then the operator."""
        self.node.kubectl("delete", "mms", "--all", "--wait=true")
        self.uninstall()

    def resource(self, name: str = "shapes") -> Object:
        """A MultimodalService as it stands."""
        found: Object = json.loads(self.node.kubectl("get", "mms", name, "-o", "json"))
        return found

    def change(self, spec: Object, name: str = "shapes") -> None:
        """Merges ``spec`` into the resource's, as a user would; None takes a field away."""
        patch = json.dumps({"spec": spec})
        self.node.kubectl("patch", "mms", name, "--type=merge", "-p", patch)

    def until(self, *types: str, name: str = "shapes", seconds: float = READY_SECONDS) -> None:
        """Waits until conditions are true of the generation that stands.

        Raises:
            TimeoutError: one is not; says what stands.
        """
        deadline = time.monotonic() + seconds
        while True:
            found = self.resource(name)
            generation = found["metadata"]["generation"]
            true = {
                one["type"]
                for one in found.get("status", {}).get("conditions", ())
                if one["status"] == "True" and one["observedGeneration"] == generation
            }
            if true.issuperset(types):
                return
            if time.monotonic() > deadline:
                pods = self.node.kubectl("get", "pods", "-o", "wide")
                raise TimeoutError(f"{types}: {json.dumps(found.get('status'), indent=1)}\n{pods}")
            time.sleep(0.5)

    def url(self, name: str = "shapes") -> str:
        """Where this machine reaches the gateway: by its Service's address."""
        where = "jsonpath={.spec.clusterIP}"
        address = self.node.kubectl("get", "service", f"{name}-gateway", "-o", where)
        return f"http://{address}:8000/v1"

    def wait_gone(self, addresses: frozenset[str], seconds: float = READY_SECONDS) -> None:
        """Waits until the pods at ``addresses`` have ended.

        Raises:
            TimeoutError: one has not.
        """
        deadline = time.monotonic() + seconds
        while left := self.addresses() & addresses:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sorted(left)} do not end")
            time.sleep(0.5)

    def wait_restarted(self, pod: str, seconds: float = READY_SECONDS) -> None:
        """Waits until a pod whose program ended is ready again.

        Raises:
            TimeoutError: it is not.
        """
        deadline = time.monotonic() + seconds
        while True:
            status = json.loads(self.node.kubectl("get", "pod", pod, "-o", "json"))["status"]
            restarts = status["containerStatuses"][0]["restartCount"]
            conditions = {one["type"]: one["status"] for one in status["conditions"]}
            if restarts and conditions["Ready"] == "True":
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{pod} is not ready again: {json.dumps(status, indent=1)}")
            time.sleep(0.5)

    def pods(self, tier: str = "") -> dict[str, str]:
        """Uids of the pods of one tier, or of all, by name; without those that are ending."""
        found = (one["metadata"] for one in self._pods(tier) if not _ends(one))
        return {one["name"]: one["uid"] for one in found}

    def addresses(self, tier: str = "", *, ending: bool = True) -> frozenset[str]:
        """Addresses of the pods of one tier, or of all; without those ``ending`` if they are not
        wanted."""
        found = (one for one in self._pods(tier) if ending or not _ends(one))
        return frozenset(one["status"].get("podIP", "") for one in found) - {""}

    def _pods(self, tier: str) -> list[Object]:
        labels = "app.kubernetes.io/instance=shapes"
        if tier:
            labels += f",app.kubernetes.io/component={tier}"
        found = json.loads(self.node.kubectl("get", "pods", "-l", labels, "-o", "json"))
        items: list[Object] = found["items"]
        return items


def _ends(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


@contextmanager
def product(node: OneNode, folder: Path) -> Iterator[Product]:
    """The chart installed within the block."""
    made = Product(node, Helm(folder, node.kubeconfig))
    made.install()
    try:
        yield made
    finally:
        made.remove()


@contextmanager
def demonstrated(node: OneNode, folder: Path) -> Iterator[tuple[Product, str]]:
    """What `make cluster-demo` leaves, within the block, and what it printed."""
    with_this_python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / "hack/cluster-demo"],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEMO_SECONDS,
        env={**os.environ, "PATH": with_this_python, "PROVIDER": "node"},
    )
    assert done.returncode == 0, done.stdout
    made = Product(node, Helm(folder, node.kubeconfig))
    try:
        yield made, done.stdout
    finally:
        made.remove()
