"""Decide whether addresses are public, by the IANA special-purpose registries, including addresses inside others.

This module neither resolves names nor connects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

_LOOPBACK = "loopback"
_PRIVATE = "private use (RFC 1918)"
_SHARED = "carrier-grade NAT"
_UNIQUE_LOCAL = "unique local (RFC 4193)"
_METADATA = "cloud metadata"
_DOCUMENTATION = "documentation"
_BENCHMARK = "benchmarking"
_PROTOCOL = "IETF protocol assignment"
_RESERVED = "reserved"

# The local network: the only reasons that `allow_private` or a host name may lift.
PRIVATE_REASONS = frozenset({_LOOPBACK, _PRIVATE, _SHARED, _UNIQUE_LOCAL})

_LOW_32 = 0xFFFFFFFF
# RFC 5214 §6.1: the interface identifier 00-00-5E-FE, with any universal and group bits, under any prefix.
_ISATAP = 0x00005EFE
_ISATAP_MASK = 0xFCFFFFFF
_MAPPED = "IPv4-mapped"

# IPv6 forms that contain an IPv4 address `shift` bits above their end, XORed with a mask.
_WRAPPINGS = (
    (_MAPPED, IPv6Network("::ffff:0:0/96"), 0, 0),
    ("IPv4-compatible", IPv6Network("::/96"), 0, 0),
    ("IPv4-translated", IPv6Network("::ffff:0:0:0/96"), 0, 0),
    ("NAT64", IPv6Network("64:ff9b::/96"), 0, 0),
    ("local-use NAT64", IPv6Network("64:ff9b:1::/96"), 0, 0),
    ("6to4", IPv6Network("2002::/16"), 80, 0),
    ("Teredo (server)", IPv6Network("2001::/32"), 64, 0),
    # RFC 4380 §4: the client's address is stored with every bit inverted.
    ("Teredo (client)", IPv6Network("2001::/32"), 0, _LOW_32),
)


def refusal_reason(address: Address) -> str | None:
    """Return the reason why an address must not be connected to; None if it is public."""
    if isinstance(address, IPv6Address):
        for form, inner in _extract_embedded(address):
            if reason := _longest_match(int(inner), _ipv4_blocks()):
                return reason if form == _MAPPED else f"{reason} inside {form}"
        return _longest_match(int(address), _ipv6_blocks())
    return _longest_match(int(address), _ipv4_blocks())


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine: a loopback address, or a name below `localhost` (RFC 6761)."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return f".{host}".endswith(".localhost")


def unmap_ipv4(address: Address) -> Address:
    """Return the IPv4 address of an IPv4-mapped address, which the kernel treats as the same; others unchanged."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


class _Block(NamedTuple):
    """One row of a registry as integers; a membership test is two comparisons."""

    first: int
    last: int
    reason: str | None


def _longest_match(number: int, blocks: Iterable[_Block]) -> str | None:
    # The blocks are sorted by prefix length, longest first, and end with the whole address space.
    return next(block.reason for block in blocks if block.first <= number <= block.last)


def _extract_embedded(address: IPv6Address) -> Iterator[tuple[str, IPv4Address]]:
    number = int(address)
    if number <= 1:  # RFC 4291 §2.5: `::` and `::1` are not IPv4-compatible addresses
        return
    for form, network, shift, mask in _WRAPPINGS:
        if address in network:
            yield form, IPv4Address((number >> shift & _LOW_32) ^ mask)
    if number >> 32 & _ISATAP_MASK == _ISATAP:
        yield "ISATAP", IPv4Address(number & _LOW_32)


def _blocks(*rows: tuple[str, str | None]) -> tuple[_Block, ...]:
    networks = sorted(((ip_network(text), reason) for text, reason in rows), key=lambda row: -row[0].prefixlen)
    return tuple(_Block(int(net[0]), int(net[-1]), reason) for net, reason in networks)


# https://www.iana.org/assignments/iana-ipv4-special-registry: None is "globally reachable".
# The metadata addresses are not IANA's; each cloud documents its own.
@cache
def _ipv4_blocks() -> tuple[_Block, ...]:
    """Return the blocks of IPv4; built at the first use, because most programs never need them at start."""
    return _blocks(
        ("0.0.0.0/0", None),
        ("0.0.0.0/8", "this network"),
        ("0.0.0.0/32", "unspecified"),
        ("10.0.0.0/8", _PRIVATE),
        ("100.64.0.0/10", _SHARED),
        ("100.100.100.200/32", _METADATA),  # Alibaba
        ("127.0.0.0/8", _LOOPBACK),
        ("168.63.129.16/32", _METADATA),  # Azure's wire server, inside public space
        ("169.254.0.0/16", "link-local"),
        ("169.254.0.23/32", _METADATA),  # Tencent
        ("169.254.42.42/32", _METADATA),  # Scaleway
        ("169.254.169.254/32", _METADATA),  # AWS, Google, Azure, Oracle, DigitalOcean, OpenStack and others
        ("169.254.170.2/32", _METADATA),  # AWS ECS task credentials
        ("169.254.170.23/32", _METADATA),  # AWS EKS pod identity
        ("172.16.0.0/12", _PRIVATE),
        ("192.0.0.0/24", _PROTOCOL),
        ("192.0.0.9/32", None),  # PCP anycast
        ("192.0.0.10/32", None),  # TURN anycast
        ("192.0.0.192/32", _METADATA),  # Oracle Cloud, classic
        ("192.0.2.0/24", _DOCUMENTATION),
        ("192.31.196.0/24", None),  # AS112
        ("192.52.193.0/24", None),  # AMT
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", _PRIVATE),
        ("192.175.48.0/24", None),  # AS112
        ("198.18.0.0/15", _BENCHMARK),
        ("198.51.100.0/24", _DOCUMENTATION),
        ("203.0.113.0/24", _DOCUMENTATION),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", _RESERVED),
        ("255.255.255.255/32", "broadcast"),
    )


# https://www.iana.org/assignments/iana-ipv6-special-registry; outside 2000::/3 nothing is assigned to hosts.
# Tunnels are always refused, even around a public address: servers do not use them, and the relay decides where
# a packet ends.
@cache
def _ipv6_blocks() -> tuple[_Block, ...]:
    """Return the blocks of IPv6; built at the first use, because most programs never need them at start."""
    return _blocks(
        ("::/0", _RESERVED),
        ("::/96", "IPv4-compatible"),
        ("::/128", "unspecified"),
        ("::1/128", _LOOPBACK),
        ("::ffff:0:0/96", None),  # IPv4-mapped: checked by the address inside
        ("64:ff9b::/96", None),  # NAT64, used by IPv6-only networks to reach IPv4: checked by the address inside
        ("64:ff9b:1::/48", "local-use NAT64"),
        ("100::/64", "discard only"),
        ("100:0:0:1::/64", "dummy prefix"),
        ("2000::/3", None),
        ("2001::/23", _PROTOCOL),
        ("2001::/32", "Teredo"),
        ("2001:1::1/128", None),  # PCP anycast
        ("2001:1::2/128", None),  # TURN anycast
        ("2001:1::3/128", None),  # DNS-SD SRP anycast
        ("2001:2::/48", _BENCHMARK),
        ("2001:3::/32", None),  # AMT
        ("2001:4:112::/48", None),  # AS112
        ("2001:20::/28", "ORCHIDv2"),  # reachable by the registry, but an identifier and not a host
        ("2001:30::/28", None),  # DRIP
        ("2001:db8::/32", _DOCUMENTATION),
        ("2002::/16", "6to4"),
        ("2620:4f:8000::/48", None),  # AS112
        ("3fff::/20", _DOCUMENTATION),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", _UNIQUE_LOCAL),
        ("fd00:42::42/128", _METADATA),  # Scaleway
        ("fd00:ec2::23/128", _METADATA),  # AWS EKS pod identity
        ("fd00:ec2::254/128", _METADATA),  # AWS
        ("fd20:ce::254/128", _METADATA),  # Google
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
