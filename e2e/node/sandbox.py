"""The namespaces that the node lives in, and their end."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

from node.layout import CGROUP, Layout
from node.processes import start, wait

ENTER_SECONDS = 20.0
END_SECONDS = 20.0
SHARES_OF_A_PROCESSOR = 1024
_CGROUPS = Path("/sys/fs/cgroup")
_HERE = Path(__file__).parent


def enter(layout: Layout, programs: Path) -> int:
    """Starts the supervisor in namespaces of its own; gives the process that holds them."""
    namespaces = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    supervisor = (sys.executable, "-m", "node.supervisor", str(layout.root), str(programs))
    _make_cgroup()
    os.environ["PYTHONPATH"] = str(_HERE.parent)
    command = ("unshare", *namespaces, "tini", "--", *supervisor)
    process = start(command, layout.log)
    layout.pid.write_text(str(process.pid))
    # Until then it is in the machine's own network, where nobody may lay a cable to it.
    wait(partial(_has_its_own_network, process.pid), ENTER_SECONDS, "the node's namespaces")
    return process.pid


def _has_its_own_network(process: int) -> bool:
    return _network(process) != _network("self")


def _network(process: int | str) -> str:
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError as error:
        raise RuntimeError(
            f"unshare ended before it made the node's namespaces: {error}"
        ) from error


def alive(layout: Layout) -> int | None:
    """The process that holds the node's namespaces, if it runs."""
    try:
        process = int(layout.pid.read_text())
        arguments = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return process if os.fsencode(layout.root) in arguments else None


def end(layout: Layout) -> None:
    """Kills everything in the namespaces; mounts and interfaces in them go too."""
    process = alive(layout)
    if process is not None:
        os.kill(process, signal.SIGKILL)
        wait(lambda: alive(layout) is None, END_SECONDS, f"the end of process {process}")
    for cgroup in _cgroups():
        wait(partial(_removed, cgroup), END_SECONDS, f"the end of what runs in {cgroup}")


def _make_cgroup() -> None:
    """One cgroup in every hierarchy (version 1), or in the only one (version 2). Pods have all
    processors' share of the machine, as they have on a node that is a machine."""
    hierarchies = [path.parent for path in _CGROUPS.glob("*/cgroup.procs")]
    if (_CGROUPS / "cgroup.controllers").exists():
        hierarchies = [_CGROUPS]
    for hierarchy in hierarchies:
        (hierarchy / CGROUP).mkdir(exist_ok=True)
        shares = hierarchy / CGROUP / "cpu.shares"
        if shares.exists():
            shares.write_text(str(SHARES_OF_A_PROCESSOR * (os.cpu_count() or 1)))


def _cgroups() -> list[Path]:
    return [path for path in (_CGROUPS / CGROUP, *_CGROUPS.glob(f"*/{CGROUP}")) if path.is_dir()]


def _removed(cgroup: Path) -> bool:
    """Removes a cgroup and those in it, as far as nothing runs there any more."""
    for folder, _, _ in os.walk(cgroup, topdown=False):
        try:
            Path(folder).rmdir()
        except OSError:
            return False
    return True
