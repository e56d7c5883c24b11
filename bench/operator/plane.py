"""The cluster of a run: a control plane that logs calls, and nodes that kwok plays."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from cluster.api import Api
from cluster.control_plane import ControlPlane
from cluster.kwok import Kwok

from bench.operator.calls import CallLog

ROOT: Final = Path(__file__).resolve().parents[2]
__all__ = ["AUTHOR", "Api", "ControlPlane", "cluster", "stop_controllers"]

AUTHOR: Final = "admin"  # the user that makes and changes resources
SERVED_SECONDS: Final = 30.0
# Autoscalers without a metrics API fail at every look: at the usual pace that would be most of what
# the machine does, and none of it an operator's work.
CONTROLLERS: Final = {"horizontal-pod-autoscaler-sync-period": "600s"}


@asynccontextmanager
async def cluster(
    folder: Path, log: CallLog, namespaces: Sequence[str]
) -> AsyncIterator[ControlPlane]:
    """Runs it, with our resource definition and ``namespaces``."""
    flags = {"kube-apiserver": log.flags(), "kube-controller-manager": CONTROLLERS}
    with ExitStack() as stack:
        plane = ControlPlane(folder, flags=flags)
        await asyncio.to_thread(stack.enter_context, plane)
        plane.kubectl("apply", "-f", str(ROOT / "crds"))
        _wait_for_resources(plane)
        for namespace in namespaces:
            plane.kubectl("create", "namespace", namespace)
        await asyncio.to_thread(stack.enter_context, Kwok(plane, folder))
        yield plane


def stop_controllers(plane: ControlPlane) -> None:
    """Ends what makes pods of Deployments and binds them to nodes."""
    plane.stop_program("kube-controller-manager")
    plane.stop_program("kube-scheduler")


def _wait_for_resources(plane: ControlPlane) -> None:
    """Until the API server serves our resources."""
    deadline = time.monotonic() + SERVED_SECONDS
    while True:
        try:
            plane.kubectl("get", "--all-namespaces", "multimodalservices")
        except subprocess.CalledProcessError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return
