"""Waits for resource definitions that were just installed."""

from __future__ import annotations

import subprocess
import time

from cluster.kubectl import Cluster

SECONDS = 60.0


def wait_until_served(cluster: Cluster, *plurals: str) -> None:
    """Until resources can be listed and explained, which is later than that one is Established.

    (To wait for that condition fails at once while a definition has no conditions at all.)

    Raises:
        TimeoutError: they are not served in time.
    """
    deadline = time.monotonic() + SECONDS
    for plural in plurals:
        for command in (("get", plural, "--all-namespaces"), ("explain", plural)):
            _until_done(cluster, command, deadline)


def _until_done(cluster: Cluster, command: tuple[str, ...], deadline: float) -> None:
    while True:
        try:
            cluster.kubectl(*command)
        except subprocess.CalledProcessError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"kubectl {' '.join(command)}: {error.stderr}") from error
            time.sleep(0.2)
        else:
            return
