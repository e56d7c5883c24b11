"""Ports that programs are given, which are nobody else's."""

from __future__ import annotations

import multiprocessing
import socket
from pathlib import Path

from cluster.ports import BLOCK, free_port

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_port_is_given_once_and_is_none_that_the_kernel_hands_out() -> None:
    given = [free_port() for _ in range(BLOCK // 2)]
    assert len(set(given)) == len(given)
    assert max(given) < int(EPHEMERAL.read_text().split()[0])


def test_a_port_at_which_somebody_listens_is_passed_over() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert port not in {free_port() for _ in range(BLOCK - 1)}
    assert port in {free_port() for _ in range(BLOCK)}


def test_processes_have_ports_of_their_own() -> None:
    ours = {free_port() for _ in range(BLOCK)}
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.apply(free_port) not in ours
