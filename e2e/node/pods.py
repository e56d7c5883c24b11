"""Processes of pods, found by their cgroups: this machine sees what runs in the node."""

from __future__ import annotations

from pathlib import Path

from node.layout import CGROUP

_PAUSE = "/pause"  # holds a pod's network, and is no program of it


def programs(pod_uid: str) -> list[int]:
    """The first process of each container of a pod, as this machine numbers them."""
    return [
        int(process.name)
        for process in Path("/proc").iterdir()
        if process.name.isdecimal() and _is_program(process, pod_uid)
    ]


def _is_program(process: Path, pod_uid: str) -> bool:
    try:
        cgroups = (process / "cgroup").read_text()
        if CGROUP not in cgroups or f"pod{pod_uid}" not in cgroups:
            return False
        command = (process / "cmdline").read_bytes().split(b"\0")[0].decode()
        return command != _PAUSE and _is_first(process)
    except OSError:  # it has ended meanwhile
        return False


def _is_first(process: Path) -> bool:
    """Whether it is number 1 in its container."""
    lines = (process / "status").read_text().splitlines()
    numbers = next(line for line in lines if line.startswith("NSpid:"))
    return numbers.split()[-1] == "1"
