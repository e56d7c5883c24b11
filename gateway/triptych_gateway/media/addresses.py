"""Which addresses a picture may be fetched from: public ones, and those that are configured.

Pure: an address comes in, a verdict goes out.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Refused although the standard library of some versions calls parts of them global: carrier-grade
# NAT, protocol assignments (a cloud's metadata lives there), benchmarks, a cloud's host agent.
_REFUSED: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(cidr)
    for cidr in (
        "0.0.0.0/8", "100.64.0.0/10", "168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24",
        "198.18.0.0/15", "240.0.0.0/4", "64:ff9b:1::/48", "100::/64", "fc00::/7", "fec0::/10",
    )
)  # fmt: skip
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def parse_networks(cidrs: Iterable[str]) -> tuple[Network, ...]:
    """The networks behind ``cidrs``.

    Raises:
        ValueError: one of them is not a network in CIDR notation.
    """
    return tuple(ipaddress.ip_network(cidr) for cidr in cidrs)


def is_allowed(address: Address, networks: Iterable[Network]) -> bool:
    """Whether ``address`` lies in one of ``networks``, looked at as the host it leads to."""
    target = _leads_to(address)
    return any(target in network for network in networks)


def is_public(address: Address) -> bool:
    """Whether anybody on the internet could reach ``address``."""
    target = _leads_to(address)
    if any(target in network for network in _REFUSED):
        return False
    special = (
        target.is_private
        or target.is_loopback
        or target.is_link_local
        or target.is_multicast
        or target.is_unspecified
        or target.is_reserved
    )
    return target.is_global and not special


def _leads_to(address: Address) -> Address:
    """The IPv4 host inside an IPv6 address that embeds one, else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or int(address) >> 32 == 0:  # the latter: deprecated IPv4-compatible
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
