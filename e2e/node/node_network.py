"""The node's side of the network: its interface, and the bridge of its pods by CNI."""

from __future__ import annotations

import json
from pathlib import Path

from node.layout import (
    BRIDGE,
    HOST_ADDRESS,
    NODE_ADDRESS,
    NODE_INTERFACE,
    POD_GATEWAY,
    POD_NETWORK,
)
from node.processes import run, wait

CABLE_SECONDS = 30.0
_SYSCTL = Path("/proc/sys/net")


def configure() -> None:
    """Waits for the cable, then gives addresses, routes and the way out to this namespace."""
    interface = Path("/proc/sys/net/ipv4/conf") / NODE_INTERFACE
    wait(interface.exists, CABLE_SECONDS, f"interface {NODE_INTERFACE} of the node")
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{NODE_ADDRESS}/30", "dev", NODE_INTERFACE)
    run("ip", "link", "set", NODE_INTERFACE, "up")
    run("ip", "route", "add", "default", "via", HOST_ADDRESS)
    (_SYSCTL / "ipv4/ip_forward").write_text("1")
    bridged = _SYSCTL / "bridge/bridge-nf-call-iptables"
    if bridged.exists():  # Services and policies also hold between pods of one bridge
        bridged.write_text("1")
    outside = ("-s", POD_NETWORK, "!", "-d", POD_NETWORK, "-o", NODE_INTERFACE)
    run("iptables", "-w", "-t", "nat", "-A", "POSTROUTING", *outside, "-j", "MASQUERADE")


def write_cni(folder: Path, leases: Path) -> None:
    """Writes the configuration of pod interfaces to ``folder``; addresses given are kept in
    ``leases``."""
    folder.mkdir(parents=True)
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(leases),
            "ranges": [[{"subnet": POD_NETWORK, "gateway": POD_GATEWAY}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    network = {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}
    (folder / "10-pods.conflist").write_text(json.dumps(network))
