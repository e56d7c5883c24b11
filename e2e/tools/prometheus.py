"""A Prometheus that scrapes pods of a cluster by our PodMonitor, and records by our rules."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml
from cluster.control_plane import LOOPBACK
from cluster.kubectl import Cluster
from cluster.ports import free_port
from node.processes import stop
from tools.programs import CHART, program

READY_SECONDS: Final = 60.0
CALL_SECONDS: Final = 10.0
SCRAPES: Final = "2s"  # ours are 15 s apart; tests need not wait as long
_FILES: Final = CHART / "files/prometheus"
# No other way of finding targets is built in: most of the program is those of clouds.
_TAGS: Final = "remove_all_sd,enable_kubernetes_sd"

Object = dict[str, Any]  # of its answers and its configuration


class Prometheus:
    """Runs inside a ``with``."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._kubeconfig = cluster.kubeconfig
        self._folder = folder
        self._log = folder / "prometheus.log"
        self.url = f"http://{LOOPBACK}:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        configuration = self._folder / "prometheus.yaml"
        configuration.write_text(yaml.safe_dump(self._configuration()))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program("prometheus", tags=_TAGS),
                    f"--config.file={configuration}",
                    f"--storage.tsdb.path={self._folder / 'prometheus'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait_ready(self._process)
        except BaseException:
            stop(self._process)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        stop(self._process)
        if error is not None:
            error.add_note(f"Prometheus' log ends:\n{self._tail()}")

    def query(self, expression: str) -> list[Object]:
        """The series that ``expression`` has now."""
        asked = urllib.parse.urlencode({"query": expression})
        found: list[Object] = self._ask(f"/api/v1/query?{asked}")["data"]["result"]
        return found

    def rules(self) -> list[Object]:
        """All rules, with their ``health`` and what was wrong the last time."""
        groups = self._ask("/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _ask(self, path: str) -> Object:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=CALL_SECONDS) as answer:
            found: Object = json.loads(answer.read())
        return found

    def _configuration(self) -> Object:
        return {
            "global": {"scrape_interval": SCRAPES, "scrape_timeout": SCRAPES},
            "rule_files": [str(_FILES / "rules.yaml")],
            "scrape_configs": [scrapes_of(_monitor(), self._kubeconfig)],
        }

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/-/ready", timeout=CALL_SECONDS).close()
            except (urllib.error.URLError, OSError):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise TimeoutError(f"Prometheus is not ready:\n{self._tail()}") from None
                time.sleep(0.1)
            else:
                return

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def _monitor() -> Object:
    found: Object = yaml.safe_load((_FILES / "pod-monitor.yaml").read_text())
    return found


def scrapes_of(monitor: Object, kubeconfig: Path) -> Object:
    """The configuration that a PodMonitor comes to, as far as ours goes: pods by label, one port by
    name, labels from the pod's.

    The Prometheus operator does this in a cluster, with a page of labels of its own besides.
    """
    (endpoint,) = monitor["podMetricsEndpoints"]
    relabelings = [
        {
            "action": "keep",
            "source_labels": [f"__meta_kubernetes_pod_label_{_plain(label)}"],
            "regex": value,
        }
        for label, value in monitor["selector"]["matchLabels"].items()
    ]
    port = ["__meta_kubernetes_pod_container_port_name"]
    relabelings.append({"action": "keep", "source_labels": port, "regex": endpoint["port"]})
    for place in ("namespace", "pod"):
        source = "pod_name" if place == "pod" else place
        relabelings.append(
            {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": place}
        )
    relabelings += [
        {"source_labels": one["sourceLabels"], "target_label": one["targetLabel"]}
        for one in endpoint["relabelings"]
    ]
    return {
        "job_name": "triptych",
        "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": str(kubeconfig)}],
        "relabel_configs": relabelings,
    }


def _plain(label: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in label)
