"""kubectl against one cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

TIMEOUT_SECONDS = 60.0


class Cluster:
    """A cluster that tests may use, as its administrator."""

    def __init__(self, kubectl: Path, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._kubectl = kubectl

    def kubectl(self, *arguments: str, manifest: str | None = None) -> str:
        """Runs kubectl as the administrator, ``manifest`` being its input; gives what it printed.

        Raises:
            subprocess.CalledProcessError: kubectl failed; ``stderr`` says why.
        """
        command = [str(self._kubectl), f"--kubeconfig={self.kubeconfig}", *arguments]
        try:
            done = subprocess.run(
                command,
                check=True,
                capture_output=True,
                text=True,
                input=manifest,
                timeout=TIMEOUT_SECONDS,
            )
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr)  # its own text has the command alone
            raise
        return done.stdout
