import ipaddress

import pytest
from triptych_gateway.media.addresses import is_allowed, is_public, parse_networks

PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
NOT_PUBLIC = [
    "127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "192.168.1.1", "0.0.0.0", "0.1.2.3",
    "169.254.169.254", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192",
    "198.18.0.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "192.0.2.1",
    "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
    "2002:7f00:1::", "64:ff9b:1::7f00:1",
]  # fmt: skip


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_may_be_fetched_from(text):
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_other_addresses_may_not(text):
    assert not is_public(ipaddress.ip_address(text))


def test_a_configured_network_is_allowed_also_behind_a_mapped_address():
    networks = parse_networks(["10.1.0.0/16"])
    assert is_allowed(ipaddress.ip_address("10.1.2.3"), networks)
    assert is_allowed(ipaddress.ip_address("::ffff:10.1.2.3"), networks)
    assert not is_allowed(ipaddress.ip_address("10.2.0.1"), networks)


def test_a_network_with_host_bits_is_refused():
    with pytest.raises(ValueError, match="host bits"):
        parse_networks(["10.1.0.1/16"])
