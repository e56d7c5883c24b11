"""The machine's side of the cable to the node: an interface, routes, and the way out.

Everything is marked or named so that ``remove`` finds it, also after a crash.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from node.layout import (
    HOST_ADDRESS,
    HOST_INTERFACE,
    LINK_NETWORK,
    NODE_ADDRESS,
    NODE_INTERFACE,
    POD_NETWORK,
    SERVICE_NETWORK,
)
from node.processes import CommandError, run, wait

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_INTERFACES = Path("/sys/class/net")
_GONE_SECONDS = 30.0
_MARK = ("-m", "comment", "--comment", "triptych-node")
_RULES = (
    ("nat", "POSTROUTING", ("-s", LINK_NETWORK, "!", "-d", LINK_NETWORK, "-j", "MASQUERADE")),
    ("filter", "FORWARD", ("-i", HOST_INTERFACE, "-j", "ACCEPT")),
    ("filter", "FORWARD", ("-o", HOST_INTERFACE, "-j", "ACCEPT")),
)


class NetworkTakenError(Exception):
    """A network that the node needs is in use on this machine."""


def check_free() -> None:
    """Sees that no other route of this machine covers the node's networks.

    Raises:
        NetworkTakenError: one does; the message names it.
    """
    for network in (LINK_NETWORK, POD_NETWORK, SERVICE_NETWORK):
        for route in json.loads(run("ip", "-json", "route", "show", "root", network)):
            if route["dst"] != "default":
                raise NetworkTakenError(
                    f"network {network} is taken on this machine (route to {route['dst']} by "
                    f"{route['dev']}): use an existing cluster by KUBECONFIG, or another machine"
                )


def connect(process: int, previous: Path) -> None:
    """Lays the cable into the network namespace of ``process``; notes in ``previous`` what the
    machine's forwarding was."""
    host, node = HOST_INTERFACE, NODE_INTERFACE
    # That of a node which was killed goes with its namespace, and the kernel takes its time.
    wait(lambda: not _INTERFACES.joinpath(host).exists(), _GONE_SECONDS, f"{host} is gone")
    run("ip", "link", "add", host, "type", "veth", "peer", "name", node, "netns", str(process))
    run("ip", "address", "add", f"{HOST_ADDRESS}/30", "dev", host)
    run("ip", "link", "set", host, "up")
    for network in (POD_NETWORK, SERVICE_NETWORK):
        run("ip", "route", "add", network, "via", NODE_ADDRESS, "dev", host)
    previous.write_text(FORWARDING.read_text())
    FORWARDING.write_text("1")
    for table, chain, rule in _RULES:
        run("iptables", "-w", "-t", table, "-I", chain, *_MARK, *rule)


def remove(previous: Path) -> None:
    """Takes away all that ``connect`` made; nothing where nothing was made."""
    for table, chain, rule in _RULES:
        with contextlib.suppress(CommandError):  # there is none
            while True:
                run("iptables", "-w", "-t", table, "-D", chain, *_MARK, *rule)
    with contextlib.suppress(CommandError):  # it went with the namespace
        run("ip", "link", "delete", HOST_INTERFACE)
    if previous.exists():
        FORWARDING.write_text(previous.read_text())
