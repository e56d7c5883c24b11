"""Flux's source-controller and kustomize-controller, as processes beside a control plane."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster.kubectl import Cluster
from cluster.ports import free_port
from node.processes import stop
from tools.definitions import wait_until_served
from tools.programs import program, sources

CONTROLLERS = ("source-controller", "kustomize-controller")
NAMESPACE = "flux-system"


class Flux:
    """Runs inside a ``with``; its own objects belong into ``NAMESPACE``."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for name in CONTROLLERS:
            definitions = sources(name, f"github.com/fluxcd/{name}") / "config/crd/bases"
            self._cluster.kubectl("apply", "--server-side", "-f", str(definitions))
        wait_until_served(self._cluster, "gitrepositories", "kustomizations")
        self._cluster.kubectl("create", "namespace", NAMESPACE)
        storage = f"127.0.0.1:{free_port()}"
        self._start(
            "source-controller",
            f"--storage-path={self._folder}",
            f"--storage-addr={storage}",
            f"--storage-adv-addr={storage}",
        )
        self._start("kustomize-controller")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            stop(process)
        if error is not None:
            for name in CONTROLLERS:
                error.add_note(f"{name}'s log ends:\n{self.log(name)[-3000:]}")

    def log(self, name: str) -> str:
        """All that a controller has logged."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, *arguments: str) -> None:
        ports = [f"--{which}-addr=127.0.0.1:{free_port()}" for which in ("metrics", "health")]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [program(name), *ports, *arguments],
                    stdout=log,
                    stderr=log,
                    env={
                        "KUBECONFIG": str(self._cluster.kubeconfig),
                        "RUNTIME_NAMESPACE": NAMESPACE,
                        "HOME": str(self._folder),
                        "TMPDIR": str(self._folder),
                    },
                    start_new_session=True,
                )
            )
