"""Network policy: the addresses that a source may connect to besides public ones."""

from __future__ import annotations

import asyncio
import socket
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolPermissionError
from toolpost.contracts.records import represent
from toolpost.wire.addresses import PRIVATE_REASONS, Address, refusal_reason, unmap_ipv4
from toolpost.wire.proxies import parse_proxy
from toolpost.wire.targets import (
    HTTP_SCHEMES,
    REFUSED,
    WEBSOCKET_SCHEMES,
    Target,
    ascii_name,
    parse_target,
    read_host,
    split_authority,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from toolpost.contracts.calls import Credential

CREDENTIAL_ORIGIN = "credential_origin"
_ANY_SCHEME = HTTP_SCHEMES | WEBSOCKET_SCHEMES
_NO_HOST = ""
_NAME_REMEDY = "Write the name of the host; an operator can allow addresses with network.allow_ip_literals."
_DOCUMENT_REMEDY = (
    "A document may only point at public addresses and at the host it came from; "
    "an operator can write the right URL into the source's configuration."
)


class NetworkPolicy(Struct, frozen=True, kw_only=True):
    """The addresses that a source may connect to besides public ones.

    `allow_hosts` and `allow_private` are the configuration's `network`; `operator_hosts` are entries of the same form
    for one source. With `document_host`, only that host may have a non-public address: a document must not direct a
    tool to hosts that were allowed for other reasons. A `proxy` carries every connection, to the addresses that the
    policy allows. With `trace_context`, requests contain the trace ID. `from_data` means that the URLs of a source come
    from data, such as a row of a table, not from the operator: their hosts are not allowed automatically.
    Without `ip_literals`, a URL must contain a host name, unless the address is one of `operator_hosts`.
    """

    allow_hosts: frozenset[str] = frozenset()
    allow_private: bool = False
    operator_hosts: frozenset[str] = frozenset()
    document_host: str | None = None
    proxy: str | None = None
    trace_context: bool = False
    from_data: bool = False
    ip_literals: bool = True

    def __repr__(self) -> str:
        return represent(self, without=("proxy",))

    def __post_init__(self) -> None:
        allow_rules(self.allow_hosts | self.operator_hosts)
        if self.proxy is not None:
            parse_proxy(self.proxy)

    def for_source(self, *urls: str) -> NetworkPolicy:
        """Return the policy of a source with these URLs in its configuration: each host is allowed at its port.

        URLs that come from data do not allow a host.
        """
        if self.from_data:
            return self
        hosts = frozenset(parse_target(url, schemes=_ANY_SCHEME).authority for url in urls)
        return replace(self, operator_hosts=self.operator_hosts | hosts)

    def for_document(self, url: str) -> NetworkPolicy:
        """Return the policy for URLs in a document from this URL: public addresses, or the document's own host.

        For a document that another document refers to, the limits of both apply.
        """
        host = parse_target(url, schemes=_ANY_SCHEME).ascii_host
        return replace(self, document_host=host if self.document_host in {None, host} else _NO_HOST)

    async def resolve(
        self, target: Target, *, resolver: Resolver | None = None, timeout_s: float = 10.0
    ) -> list[Address]:
        """Resolve the target once and return its addresses; raise ToolPermissionError if one is refused."""
        if target.address is not None and not self.ip_literals and target.authority not in self.operator_hosts:
            message = f"host {target.host!r} is an IP address, and built-in tools take host names only. {_NAME_REMEDY}"
            raise ToolPermissionError(message, code=REFUSED)
        if self.document_host in {None, target.ascii_host}:
            hosts = self.allow_hosts | self.operator_hosts
            return await resolve(
                target, allow_hosts=hosts, allow_private=self.allow_private, resolver=resolver, timeout_s=timeout_s
            )
        return await resolve(target, resolver=resolver, timeout_s=timeout_s, remedy=_DOCUMENT_REMEDY)


class Resolver(Protocol):
    """A replacement for `loop.getaddrinfo`; the last item of each result is the socket address."""

    def __call__(self, host: str, port: int, /, *, type: int) -> Awaitable[Iterable[tuple[Any, ...]]]: ...


async def resolve(
    target: Target,
    *,
    allow_hosts: frozenset[str] = frozenset(),
    allow_private: bool = False,
    resolver: Resolver | None = None,
    timeout_s: float = 10.0,
    remedy: str | None = None,
) -> list[Address]:
    """Resolve the target once and return its addresses; one refused address refuses all.

    `remedy` replaces the advice in the error if an entry in `network.allow_hosts` would not help.
    """
    rules = allow_rules(allow_hosts)
    addresses = [target.address] if target.address else await look_up_addresses(target, resolver, timeout_s)
    for address in addresses:
        reason = refusal_reason(address)
        if reason is None or (allow_private and reason in PRIVATE_REASONS):
            continue
        if not any(rule.lifts(reason, target, address) for rule in rules):
            raise _refusal(target, address, reason, remedy)
    return list(dict.fromkeys(unmap_ipv4(address) for address in addresses))


async def look_up_addresses(target: Target, resolver: Resolver | None, timeout_s: float) -> list[Address]:
    """Resolve the host of a target; ToolConnectionError if it has no address."""
    look_up = resolver or asyncio.get_running_loop().getaddrinfo
    try:
        async with asyncio.timeout(timeout_s):
            answers = await look_up(target.ascii_host, target.port, type=socket.SOCK_STREAM)
        addresses = [ip_address(answer[-1][0]) for answer in answers]
    except TimeoutError as late:
        message = f"Looking up {target.ascii_host!r} took longer than {timeout_s:g} s; check the name or the resolver."
        raise ToolConnectionError(message, sent=False, cause=late) from late
    except (OSError, ValueError) as failed:  # ValueError: the answer is not an address
        message = f"Host {target.ascii_host!r} could not be found ({failed}); check the name."
        raise ToolConnectionError(message, sent=False, cause=failed) from failed
    if not addresses:
        raise ToolConnectionError(f"Host {target.ascii_host!r} has no address; check the name.", sent=False)
    return addresses


def _refusal(target: Target, address: Address, reason: str, remedy: str | None) -> ToolPermissionError:
    host, literal = repr(target.host), target.address is not None
    subject = f"host {host}" if literal else f"host {host} resolves to {address}, which"
    entry = f"{host} or {str(address)!r}" if reason in PRIVATE_REASONS and not literal else repr(str(address))
    remedy = remedy or f"An operator can allow it with {entry} in network.allow_hosts."
    return ToolPermissionError(f"{subject} is not a public address: {reason}. {remedy}", code=REFUSED)


class AllowRule(Struct, frozen=True, kw_only=True):
    """One entry of `network.allow_hosts`: a name (`.example.org` for all below it) or a network, at one port or any.

    A name allows only loopback and private use, because the owner of the name controls its DNS. An address or a network
    allows everything that it contains, including cloud metadata.
    """

    name: str = ""
    network: IPv4Network | IPv6Network | None = None
    port: int | None = None

    def lifts(self, reason: str, target: Target, address: Address) -> bool:
        """Return whether this entry allows an address of the target that `reason` would refuse."""
        if self.port not in {None, target.port}:
            return False
        if self.network is not None:
            return address in self.network or unmap_ipv4(address) in self.network
        below = self.name.startswith(".") and target.ascii_host.endswith(self.name)
        return reason in PRIVATE_REASONS and (below or target.ascii_host == self.name)


@lru_cache(maxsize=128)
def allow_rules(entries: frozenset[str]) -> tuple[AllowRule, ...]:
    """Parse `network.allow_hosts`; raise ConfigError for an invalid entry."""
    return tuple(_read_rule(entry) for entry in sorted(entries))


def _read_rule(entry: str) -> AllowRule:
    try:
        if "/" in entry or (":" in entry.replace(":", "", 1) and "[" not in entry):
            return AllowRule(network=ip_network(entry))
        if entry.startswith("*."):
            host, port = split_authority(entry[2:])
            return AllowRule(name=f".{ascii_name(host)}", port=port)
        host, port = split_authority(entry)
        name, address = read_host(host)
        return AllowRule(name=name, network=ip_network(address) if address else None, port=port)
    except ValueError as wrong:
        forms = "host, *.host, host:port, an address or a network in CIDR form"
        raise ConfigError(f"network.allow_hosts: {entry!r} cannot be read ({wrong}); write {forms}.") from None


def check_credential_origin(credential: Credential, target: Target) -> None:
    """Raise ToolPermissionError if a credential is bound to an origin other than the target's."""
    if credential.origin and credential.origin != target.origin:
        msg = f"the credential is for {credential.origin} and is not sent to {target.origin}"
        raise ToolPermissionError(f"{msg}; give a credential for that origin", code=CREDENTIAL_ORIGIN)
