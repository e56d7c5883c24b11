"""kwok's nodes make pods ready, or let them fail in the way that their annotations ask for."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from cluster.audit import Write
from cluster.control_plane import ControlPlane
from cluster.kubectl import Cluster
from cluster.kwok import ENDS_AFTER, LAST_WORDS, PLAYS, READY_AFTER, Plays

WAIT_SECONDS = 30.0


def deployment(name: str, annotations: Mapping[str, str]) -> str:
    labels = {"app": name}
    container = {"name": "main", "image": "registry.example/absent:1"}
    template = {
        "metadata": {"labels": labels, "annotations": dict(annotations)},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": name}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    return json.dumps(made)


def only_pod(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """The pod of the namespace once its containers have a status."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        listed = json.loads(cluster.kubectl("get", "pods", f"-n={namespace}", "-o=json"))
        pods: list[dict[str, Any]] = listed["items"]
        if pods and pods[0]["status"].get("containerStatuses"):
            return pods[0]
        time.sleep(0.2)
    raise TimeoutError(f"no pod of {namespace} has a status after {WAIT_SECONDS} s")


def test_a_deployment_gets_pods_that_become_ready(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", manifest=deployment("plain", {}))
    cluster.kubectl("rollout", "status", "deploy/plain", f"-n={namespace}", "--timeout=30s")
    pod = only_pod(cluster, namespace)
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["podIP"].startswith("10.")


@pytest.mark.parametrize("plays", [Plays.IMAGE_PULL, Plays.CRASH_LOOP])
def test_a_pod_waits_for_the_reason_that_it_plays(
    cluster: Cluster, namespace: str, plays: Plays
) -> None:
    annotations = {PLAYS: plays.value, LAST_WORDS: "torch: out of memory"}
    cluster.kubectl("apply", "-n", namespace, "-f", "-", manifest=deployment("bad", annotations))
    status = only_pod(cluster, namespace)["status"]["containerStatuses"][0]
    assert status["state"]["waiting"]["reason"] == plays.value
    if plays is Plays.CRASH_LOOP:
        assert status["lastState"]["terminated"]["message"] == "torch: out of memory"


def test_a_pod_that_is_never_ready_becomes_so_once_it_plays_no_more(
    cluster: Cluster, namespace: str
) -> None:
    manifest = deployment("late", {PLAYS: Plays.NEVER_READY.value})
    cluster.kubectl("apply", "-n", namespace, "-f", "-", manifest=manifest)
    pod = only_pod(cluster, namespace)
    assert pod["status"]["containerStatuses"][0]["ready"] is False
    name = pod["metadata"]["name"]
    cluster.kubectl("annotate", "pod", name, f"-n={namespace}", f"{PLAYS}-")
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", f"-n={namespace}")


def test_a_ready_pod_fails_when_told_to(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", manifest=deployment("fails", {}))
    cluster.kubectl("rollout", "status", "deploy/fails", f"-n={namespace}", "--timeout=30s")
    name = only_pod(cluster, namespace)["metadata"]["name"]
    cluster.kubectl("annotate", "pod", name, f"-n={namespace}", f"{PLAYS}={Plays.CRASH_LOOP}")
    cluster.kubectl("wait", "--for=condition=Ready=False", f"pod/{name}", f"-n={namespace}")


def test_pods_take_the_time_that_they_are_told(cluster: Cluster, namespace: str) -> None:
    manifest = deployment("slow", {READY_AFTER: "2s", ENDS_AFTER: "3s"})
    started = time.monotonic()
    cluster.kubectl("apply", "-n", namespace, "-f", "-", manifest=manifest)
    cluster.kubectl("rollout", "status", "deploy/slow", f"-n={namespace}", "--timeout=30s")
    assert time.monotonic() - started > 2
    started = time.monotonic()
    cluster.kubectl("delete", "pods", "--all", f"-n={namespace}", "--wait=true")
    assert time.monotonic() - started > 3


def test_the_audit_log_tells_who_wrote_what(control_plane: ControlPlane, namespace: str) -> None:
    since = control_plane.audit.position()
    control_plane.kubectl("create", "configmap", "one", f"-n={namespace}")
    control_plane.kubectl("get", "configmaps", f"-n={namespace}")
    control_plane.kubectl("delete", "configmap", "one", f"-n={namespace}")
    writes = control_plane.audit.writes(since, user="admin", namespace=namespace)
    assert writes == {Write("create", "configmaps", ""): 1, Write("delete", "configmaps", ""): 1}
