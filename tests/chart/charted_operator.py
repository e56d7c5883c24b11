"""The operator as the chart runs it: its very command, as its own ServiceAccount."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml
from cluster.addresses import own_address
from cluster.control_plane import ControlPlane
from cluster.ports import free_port
from tools.programs import Object

STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Account:
    """A ServiceAccount, and a kubeconfig to act as it."""

    user: str
    kubeconfig: Path


def account_of(control_plane: ControlPlane, deployment: Object, folder: Path) -> Account:
    """The account that the pods of ``deployment`` run as, by a token such as they get."""
    namespace = deployment["metadata"]["namespace"]
    name = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    token = control_plane.kubectl("create", "token", name, f"--namespace={namespace}").strip()
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "operator.kubeconfig"
    path.write_text(json.dumps(config))
    return Account(f"system:serviceaccount:{namespace}:{name}", path)


class ChartedOperator:
    """Runs the command of ``deployment`` inside a ``with``, but for the addresses that it listens
    at."""

    def __init__(self, deployment: Object, account: Account, log: Path) -> None:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        program, *arguments = container["command"]
        assert program == "triptych"
        self._listen = f"127.0.0.1:{free_port()}"
        here = {
            "--listen=0.0.0.0:8080": f"--listen={self._listen}",
            "--metrics-address=$(POD_IP):10250": f"--metrics-address={own_address()}:{free_port()}",
        }
        given = [here.get(one, one) for one in arguments]
        self._command = [sys.executable, "-m", "triptych_operator", *given]
        self._environment = os.environ | {"KUBECONFIG": str(account.kubeconfig)}
        self._log = log

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if error is not None:
            error.add_note(f"the operator's log ends:\n{self.log()[-4000:]}")

    def log(self) -> str:
        """All that it logged."""
        return self._log.read_text(errors="replace")

    def metrics(self) -> str:
        """What it serves at ``/metrics``."""
        with urllib.request.urlopen(f"http://{self._listen}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
            return text
