"""Addresses of this machine."""

from __future__ import annotations

import socket


def own_address() -> str:
    """One that is not of loopback, which the API server takes for no endpoint.

    Raises:
        OSError: this machine has none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        address: str = probe.getsockname()[0]
    if address.startswith("127."):
        raise OSError("this machine has no address but loopback: connect it to a network")
    return address
