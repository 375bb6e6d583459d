"""What one source may connect to: public addresses, and whatever else an operator wrote down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from toolpost.wire.guard import DEFAULT_PORTS, HTTP_SCHEMES, WEBSOCKET_SCHEMES, allow_rules, parse_target, resolve
from toolpost.wire.proxies import proxy_at

if TYPE_CHECKING:
    from toolpost.wire.addresses import Address
    from toolpost.wire.guard import Resolver, Target

_ANY_SCHEME = HTTP_SCHEMES | WEBSOCKET_SCHEMES
_NOBODY = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """Who may be reached besides public addresses.

    `allow_hosts` and `allow_private` are the configuration's `network`; `operator_hosts` are entries of the same
    form that hold for one source alone. With a `document_host` only that host may be more than public: a document
    must not point a tool at what merely others may reach. A `proxy` carries every connection, to the addresses
    that were judged here.
    """

    allow_hosts: frozenset[str] = frozenset()
    allow_private: bool = False
    operator_hosts: frozenset[str] = frozenset()
    document_host: str | None = None
    proxy: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        allow_rules(self.allow_hosts | self.operator_hosts)
        if self.proxy is not None:
            proxy_at(self.proxy)

    def for_source(self, *urls: str) -> NetworkPolicy:
        """The policy of a source for which an operator wrote these URLs: each host is allowed at its port."""
        written = frozenset(authority(parse_target(url, schemes=_ANY_SCHEME)) for url in urls)
        return replace(self, operator_hosts=self.operator_hosts | written)

    def for_document(self, url: str) -> NetworkPolicy:
        """The policy for what a document from this URL points at: public addresses, or the document's own host.

        A document that another one points at is bound by both.
        """
        host = parse_target(url, schemes=_ANY_SCHEME).ascii_host
        return replace(self, document_host=host if self.document_host in {None, host} else _NOBODY)

    async def resolve(
        self, target: Target, *, resolver: Resolver | None = None, timeout_s: float = 10.0
    ) -> list[Address]:
        """Look the target up once and judge every answer; a ToolPermissionError says why it is refused."""
        if self.document_host in {None, target.ascii_host}:
            hosts = self.allow_hosts | self.operator_hosts
            return await resolve(
                target, allow_hosts=hosts, allow_private=self.allow_private, resolver=resolver, timeout_s=timeout_s
            )
        return await resolve(target, resolver=resolver, timeout_s=timeout_s, remedy=_DOCUMENT_REMEDY)


def host_header(target: Target) -> str:
    """The host as the header field says it: with its port, unless that is the scheme's own."""
    return bracketed(target) if DEFAULT_PORTS[target.scheme] == target.port else authority(target)


def authority(target: Target) -> str:
    """The host with its port."""
    return f"{bracketed(target)}:{target.port}"


def bracketed(target: Target) -> str:
    """The host as a URL writes it."""
    return f"[{target.ascii_host}]" if ":" in target.ascii_host else target.ascii_host


_DOCUMENT_REMEDY = (
    "A document may only point at public addresses and at the host it came from; "
    "an operator can write the right URL into the source's configuration."
)
