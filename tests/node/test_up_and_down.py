"""The node comes up, survives what nodes must survive, and leaves nothing on the machine.

These tests take it down, so by their name they come after those that share one node.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from node import host_network, sandbox
from node.layout import CGROUP, HOST_INTERFACE, NODE_NAME
from node.one_node import ROOT, NodeError, OneNode
from node.processes import wait

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(1800),  # Kubernetes and CoreDNS are built the first time
]


@pytest.fixture
def ended(node: OneNode) -> Iterator[OneNode]:
    """The node, which is down afterwards."""
    yield node
    node.down()


def test_each_program_restarts_and_an_unknown_one_is_named(node: OneNode) -> None:
    for program in ("kube-apiserver", "kubelet", "kube-proxy", "containerd"):
        node.restart(program)
    assert node.kubectl("get", "--raw", "/readyz") == "ok"
    with pytest.raises(NodeError, match="unknown program 'etcdd': kube-apiserver, kubelet"):
        node.restart("etcdd")


def test_a_node_that_was_killed_is_cleaned_up_and_comes_up_again(ended: OneNode) -> None:
    holder = sandbox.alive(ended.layout)
    assert holder is not None
    os.kill(holder, signal.SIGKILL)
    wait(lambda: sandbox.alive(ended.layout) is None, 30, "the end of the node")
    ended.up()
    assert sandbox.alive(ended.layout) not in (None, holder)
    assert ended.kubectl("get", "--raw", "/readyz") == "ok"
    ended.down()
    assert soon_left_of(ended) == []


def test_up_gives_a_ready_node_and_down_leaves_nothing(ended: OneNode) -> None:
    ended.down()
    forwarding = host_network.FORWARDING.read_text()
    ended.up()
    assert ended.kubectl("get", "nodes", "-o", "name") == f"node/{NODE_NAME}\n"
    holder = sandbox.alive(ended.layout)
    ended.up()  # it is up: nothing happens
    assert sandbox.alive(ended.layout) == holder
    ended.down()
    assert soon_left_of(ended) == []
    assert host_network.FORWARDING.read_text() == forwarding
    ended.down()  # it is down: nothing happens


def test_an_up_that_is_interrupted_leaves_nothing(ended: OneNode) -> None:
    ended.down()
    code, said = interrupted(
        [sys.executable, "-m", "node", "up"], lambda: sandbox.alive(ended.layout) is not None
    )
    assert (code, said) == (130, "node: interrupted\n")
    assert soon_left_of(ended) == []


def test_a_build_of_images_that_is_interrupted_leaves_nothing_mounted() -> None:
    cache = Path(os.environ.get("TRIPTYCH_CACHE", Path.home() / ".cache/triptych"))
    storage = str(cache / "images/storage/overlay")

    def mounted() -> list[str]:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        return [point for mount in mounts if (point := mount.split()[1]).startswith(storage)]

    interrupted([ROOT / "hack/images", "operator"], lambda: len(mounted()) > 1)
    assert mounted() == []


def interrupted(
    command: Sequence[str | Path], ripe: Callable[[], bool], seconds: float = 120
) -> tuple[int, str]:
    """Ends a command as Ctrl-C in a terminal does, once it is ``ripe``; its status and what it
    said."""
    with subprocess.Popen(
        ["env", "--default-signal=INT", *command],  # whoever started us may ignore it
        env={**os.environ, "PYTHONPATH": str(ROOT / "e2e")},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        wait(ripe, seconds, "the moment to interrupt")
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=seconds)
    return process.returncode, said


def soon_left_of(node: OneNode) -> list[str]:
    """What it left once the kernel has ended what was killed, for which nobody waits."""
    with suppress(TimeoutError):
        wait(lambda: not left_of(node), 30, "an end of all processes")
    return left_of(node)


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
