"""Public or not: the registries, and IPv4 inside IPv6."""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.wire.addresses import refusal_reason, unmap_ipv4

REFUSED_IPV4 = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/29",
    "192.0.0.170/31",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
]

# Written apart from the guard's own table: text that ipaddress reads, not bits that are shifted.
WRAPPINGS: dict[str, Callable[[IPv4Address], str]] = {
    "IPv4-mapped": lambda v4: f"::ffff:{v4}",
    "IPv4-compatible": lambda v4: f"::{v4}",
    "IPv4-translated": lambda v4: f"::ffff:0:{v4}",
    "NAT64": lambda v4: f"64:ff9b::{v4}",
    "local NAT64": lambda v4: f"64:ff9b:1::{v4}",
    "local NAT64, RFC 6052 layout": lambda v4: "64:ff9b:1:{}{}:{}:{}00::".format(*(f"{b:02x}" for b in v4.packed)),
    "6to4": lambda v4: f"2002:{hextets(v4)}::1",
    "Teredo server": lambda v4: f"2001:0:{hextets(v4)}:8000:63bf:f7f7:f7f7",
    "Teredo client": lambda v4: f"2001:0:4136:e378:8000:63bf:{hextets(inverted(v4))}",
    "ISATAP": lambda v4: f"2606:4700:1:2:0:5efe:{v4}",
    "ISATAP, universal": lambda v4: f"2606:4700:1:2:200:5efe:{v4}",
}


def hextets(v4: IPv4Address) -> str:
    return f"{v4.packed[:2].hex()}:{v4.packed[2:].hex()}"


def inverted(v4: IPv4Address) -> IPv4Address:
    return IPv4Address(bytes(255 - byte for byte in v4.packed))


refused_ipv4 = st.sampled_from(REFUSED_IPV4).flatmap(lambda net: st.ip_addresses(network=IPv4Network(net)))


@pytest.mark.req("NSSRF-02")
@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=WRAPPINGS.keys())
@given(v4=refused_ipv4)
def test_a_refused_ipv4_address_stays_refused_in_every_wrapping(
    wrap: Callable[[IPv4Address], str], v4: IPv4Address
) -> None:
    assert refusal_reason(v4) is not None
    assert refusal_reason(IPv6Address(wrap(v4))) is not None


@pytest.mark.parametrize("form", ["IPv4-mapped", "NAT64", "ISATAP"])
@given(v4=st.ip_addresses(v=4))
def test_what_carries_ipv4_for_hosts_is_judged_by_what_it_carries(form: str, v4: IPv4Address) -> None:
    assert (refusal_reason(IPv6Address(WRAPPINGS[form](v4))) is None) == (refusal_reason(v4) is None)


@pytest.mark.parametrize("form", sorted(WRAPPINGS.keys() - {"IPv4-mapped", "NAT64", "ISATAP", "ISATAP, universal"}))
@given(v4=st.ip_addresses(v=4))
def test_tunnels_are_refused_even_around_a_public_address(form: str, v4: IPv4Address) -> None:
    assert refusal_reason(IPv6Address(WRAPPINGS[form](v4))) is not None


@given(v4=st.ip_addresses(v=4))
def test_ipv4_agrees_with_the_standard_library_where_that_is_settled(v4: IPv4Address) -> None:
    ours_alone = {IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"), IPv4Network("168.63.129.16/32")}

    if not any(v4 in network for network in ours_alone):
        assert (refusal_reason(v4) is None) == (v4.is_global and not v4.is_multicast)


@given(v6=st.ip_addresses(v=6))
def test_public_ipv6_is_global_unicast_or_carries_public_ipv4(v6: IPv6Address) -> None:
    rooms = [IPv6Network("2000::/3"), IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96")]

    assert refusal_reason(v6) is not None or any(v6 in room for room in rooms)


@pytest.mark.req("NSSRF-02")
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "loopback"),
        ("10.1.2.3", "private use (RFC 1918)"),
        ("172.31.0.1", "private use (RFC 1918)"),
        ("192.168.0.1", "private use (RFC 1918)"),
        ("169.254.1.1", "link-local"),
        ("169.254.169.254", "cloud metadata"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("100.100.100.200", "cloud metadata"),
        ("168.63.129.16", "cloud metadata"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "this network"),
        ("192.0.2.1", "documentation"),
        ("198.18.0.1", "benchmarking"),
        ("224.0.0.1", "multicast"),
        ("250.0.0.1", "reserved"),
        ("255.255.255.255", "broadcast"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::8.8.8.8", "IPv4-compatible"),
        ("::ffff:10.0.0.1", "private use (RFC 1918)"),
        ("64:ff9b::10.0.0.1", "private use (RFC 1918) inside NAT64"),
        ("64:ff9b:1::8.8.8.8", "local-use NAT64"),
        ("2002:7f00:1::", "loopback inside 6to4"),
        ("2002:808:808::", "6to4"),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", "loopback inside Teredo (client)"),
        ("2001:0:c0a8:101:8000:63bf:f7f7:f7f7", "private use (RFC 1918) inside Teredo (server)"),
        ("2001:0:4136:e378:8000:63bf:f7f7:f7f7", "Teredo"),
        ("2606:4700::5efe:10.0.0.1", "private use (RFC 1918) inside ISATAP"),
        ("2001:20::1", "ORCHIDv2"),
        ("2001:db8::1", "documentation"),
        ("3fff::1", "documentation"),
        ("5f00::1", "segment routing"),
        ("fd00:ec2::254", "cloud metadata"),
        ("fd00::1", "unique local (RFC 4193)"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("4000::1", "reserved"),
    ],
)
def test_a_refusal_says_why(address: str, reason: str) -> None:
    assert refusal_reason(ip_address(address)) == reason


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("192.0.0.8", "192.0.0.9"), ("192.0.0.11", "192.0.0.10"), ("2001:1::4", "2001:1::3"), ("2001:4::1", "2001:3::1")],
)
def test_the_longest_prefix_wins(outer: str, inner: str) -> None:
    assert refusal_reason(ip_address(outer)) is not None
    assert refusal_reason(ip_address(inner)) is None


def test_only_a_mapped_address_has_another_plain_form() -> None:
    forms = ["::ffff:8.8.8.8", "8.8.8.8", "2606:4700::1", "64:ff9b::808:808"]

    assert [str(unmap_ipv4(ip_address(form))) for form in forms] == ["8.8.8.8", *forms[1:]]
