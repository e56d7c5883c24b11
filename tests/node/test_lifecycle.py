"""The node comes up, survives what nodes must survive, and leaves nothing on the machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from node import host_network, sandbox
from node.layout import CGROUP, HOST_INTERFACE, NODE_NAME
from node.one_node import NodeError, OneNode
from node.processes import wait

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(1800),  # Kubernetes and CoreDNS are built the first time
]


@pytest.fixture
def node() -> Iterator[OneNode]:
    made = OneNode()
    made.down()
    yield made
    made.down()


def test_up_gives_a_ready_node_and_down_leaves_nothing(node: OneNode) -> None:
    forwarding = host_network.FORWARDING.read_text()
    node.up()
    assert node.kubectl("get", "nodes", "-o", "name") == f"node/{NODE_NAME}\n"
    holder = sandbox.alive(node.layout)
    node.up()  # it is up: nothing happens
    assert sandbox.alive(node.layout) == holder
    node.down()
    assert left_of(node) == []
    assert host_network.FORWARDING.read_text() == forwarding
    node.down()  # it is down: nothing happens


def test_a_node_that_was_killed_is_cleaned_up_and_comes_up_again(node: OneNode) -> None:
    node.up()
    holder = sandbox.alive(node.layout)
    assert holder is not None
    os.kill(holder, signal.SIGKILL)
    wait(lambda: sandbox.alive(node.layout) is None, 30, "the end of the node")
    node.up()
    assert sandbox.alive(node.layout) not in (None, holder)
    assert node.kubectl("get", "--raw", "/readyz") == "ok"
    node.down()
    assert left_of(node) == []


def test_each_program_restarts_and_an_unknown_one_is_named(node: OneNode) -> None:
    node.up()
    for program in ("kube-apiserver", "kubelet", "kube-proxy", "containerd"):
        node.restart(program)
    assert node.kubectl("get", "--raw", "/readyz") == "ok"
    with pytest.raises(NodeError, match="unknown program 'etcdd': kube-apiserver, kubelet"):
        node.restart("etcdd")


def left_of(node: OneNode) -> list[str]:
    """What the node left on the machine, each in words."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    rules = subprocess.run(["iptables-save"], check=True, capture_output=True, text=True).stdout
    root = os.fsencode(node.layout.root)
    return [
        *(f"mount {mount}" for mount in mounts if str(node.layout.root) in mount),
        *(f"rule {rule}" for rule in rules.splitlines() if "triptych" in rule or "KUBE" in rule),
        *(f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"*/{CGROUP}")),
        *(f"interface {path.name}" for path in Path("/sys/class/net").glob(HOST_INTERFACE)),
        *(f"process {process}" for process in _processes() if root in _command(process)),
    ]


def _processes() -> list[Path]:
    return [path for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""
