"""What may be connected to, and over which routes: network policy, guard, name lookups, peer checks and proxies.

Plain HTTP goes through a proxy by a tunnel too: a proxy that gets a URL resolves its host itself, perhaps differently.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import ssl
import unicodedata
from collections.abc import Awaitable, Iterable
from functools import cache, lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import unquote, urljoin, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from toolpost.contracts.calls import Credential
from toolpost.contracts.errors import ConfigError, ErrorCategory, ToolConnectionError, ToolPermissionError
from toolpost.contracts.records import represent
from toolpost.wire.addresses import PRIVATE_REASONS, Address, refusal_reason, unmap_ipv4

MAX_HEAD_BYTES = 64 * 1024
_OPENED = re.compile(r"HTTP/1\.[01] 2\d\d(?: |$)")
END_OF_HEAD = b"\r\n\r\n"
HTTP_SCHEMES = frozenset({"http", "https"})
WEBSOCKET_SCHEMES = frozenset({"ws", "wss"})
DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
REFUSED = "address_refused"
CREDENTIAL_ORIGIN = "credential_origin"
_ANY_SCHEME = HTTP_SCHEMES | WEBSOCKET_SCHEMES
_NOBODY = ""
_NAME_REMEDY = "Write the name of the host; an operator can allow addresses with network.allow_ip_literals."
_DOCUMENT_REMEDY = (
    "A document may only point at public addresses and at the host it came from; "
    "an operator can write the right URL into the source's configuration."
)
_LAST_PORT = 65535
_LONGEST_NAME = 253
_LONGEST_LABEL = 63
# \s also means every Unicode space; a lone surrogate cannot be sent at all.
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\xa0\\\s\ud800-\udfff]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ORIGIN = re.compile(r"[^:/?#]*:(?://[^/?#]*)?")
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{0,5}))?")
# RFC 5892 appendix A.3 to A.7: punctuation that is spelling in Catalan, Greek, Hebrew (two) and Japanese.
_SPELLING = frozenset("\u00b7\u0375\u05f3\u05f4\u30fb")
_IN_NAMES = frozenset({"Ll", "Lo", "Lm", "Mn", "Mc", "Nd", "Nl", "So"})
_VARIATION_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
NEXT_ADDRESS_S = 2.0  # an address that swallows packets must not use up the time of the others
_CONNECT_S = 10.0
_CONNECT_SHARE = 0.8
_MAX_CACHED = 1024
_FOREVER = float("inf")
_SECURE = frozenset({"https", "wss"})
_Key: TypeAlias = tuple[str, str, int]


class ProxyError(OSError):
    """Raised when a proxy opens no tunnel; the text says what the proxy answered."""


class Proxy(Struct, frozen=True, kw_only=True):
    """Host, port and login of a proxy."""

    host: str
    port: int
    login: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("login",))

    def connect_request(self, address: Address, port: int) -> bytes:
        """Build the CONNECT request for a tunnel to an address (RFC 9110 section 9.3.6)."""
        there = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
        shown = f"Proxy-Authorization: Basic {self.login}\r\n" if self.login else ""
        return f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{shown}\r\n".encode()

    async def dial(self, address: Address, port: int) -> socket.socket:
        """Open a tunnel to an address and return its socket, on which nothing was sent yet."""
        loop = asyncio.get_running_loop()
        connection = await self._connect(loop)
        try:
            await loop.sock_sendall(connection, self.connect_request(address, port))
            head = b""
            while END_OF_HEAD not in head:
                head += await self._read_byte(loop, connection, len(head))
            check_tunnel(head)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        """Connect to the proxy, at the first of its addresses that answers."""
        failed: OSError | None = None
        try:
            addresses = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ProxyError(f"the proxy {self.host!r} could not be found ({error})") from None
        for family, kind, number, _, where in addresses:
            connection = socket.socket(family, kind, number)
            try:
                connection.setblocking(False)  # noqa: FBT003 - the standard library's way to say it
                await loop.sock_connect(connection, where)
            except OSError as error:
                failed = error
                connection.close()
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        raise ProxyError(f"no connection to the proxy {self.host}:{self.port} ({failed})")

    async def _read_byte(self, loop: asyncio.AbstractEventLoop, connection: socket.socket, had: int) -> bytes:
        """Read one byte: bytes behind the head belong to the tunnel."""
        piece = await loop.sock_recv(connection, 1)
        if not piece or had > MAX_HEAD_BYTES:
            raise ProxyError("the proxy closed the connection before it opened a tunnel")
        return piece


@lru_cache(maxsize=64)
def parse_proxy(url: str) -> Proxy:
    """Parse `network.proxy`; raise a ConfigError that does not quote the password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    odd = parts.path not in ("", "/") or parts.query or parts.fragment or not url.isprintable() or port == 0
    if parts.scheme != "http" or not parts.hostname or odd:
        raise ConfigError("network.proxy: write it as http://host:port, or http://user:password@host:port")
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if parts.username else ""
    return Proxy(host=parts.hostname, port=port or 3128, login=base64.b64encode(pair.encode()).decode())


def check_tunnel(head: bytes) -> None:
    """Raise ProxyError unless the response of a proxy opened the tunnel."""
    line = head.partition(b"\r\n")[0].decode("latin-1")
    if not _OPENED.match(line):
        raise ProxyError(f"the proxy answered {line[:80]!r}, which opens no tunnel")


class Target(Struct, frozen=True, kw_only=True):
    """Scheme, host and port of a URL; `ascii_host` is the name to look up, `address` is set for an IP literal."""

    scheme: str
    host: str
    port: int
    ascii_host: str
    address: Address | None = None

    @property
    def authority(self) -> str:
        """The host, an IPv6 address in brackets, with its port."""
        return f"{_bracket(self.ascii_host)}:{self.port}"

    @property
    def host_header(self) -> str:
        """The value of the Host header field: the port is left out when it is the scheme's default."""
        return _bracket(self.ascii_host) if DEFAULT_PORTS[self.scheme] == self.port else self.authority

    @property
    def origin(self) -> str:
        """Scheme, host and port; the port is left out when it is the scheme's default."""
        return f"{self.scheme}://{self.host_header}"


class Resolver(Protocol):
    """A replacement for `loop.getaddrinfo`; the last item of each result is the socket address."""

    def __call__(self, host: str, port: int, /, *, type: int) -> Awaitable[Iterable[tuple[Any, ...]]]:
        """Look a host up."""
        ...


class NetworkPolicy(Struct, frozen=True, kw_only=True):
    """Which addresses a source may connect to besides public ones.

    `allow_hosts` and `allow_private` are the configuration's `network`; `operator_hosts` are entries of the same
    form for one source alone. With a `document_host` only that host may have an address that is not public: a
    document must not point a tool at hosts that were allowed for other reasons. A `proxy` carries every connection,
    to the addresses that the policy allowed. With `trace_context`, requests name the trace that they are part of.
    `from_data` says that the URLs of a source come from data, such as a row of a table, and not from the operator:
    their hosts are not allowed on their own.
    Without `ip_literals` a URL must name its host, unless it is one of `operator_hosts`.
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

        URLs that come from data allow nothing.
        """
        if self.from_data:
            return self
        hosts = frozenset(parse_target(url, schemes=_ANY_SCHEME).authority for url in urls)
        return replace(self, operator_hosts=self.operator_hosts | hosts)

    def for_document(self, url: str) -> NetworkPolicy:
        """Return the policy for URLs in a document from this URL: public addresses, or the document's own host.

        For a document that another document points at, the limits of both apply.
        """
        host = parse_target(url, schemes=_ANY_SCHEME).ascii_host
        return replace(self, document_host=host if self.document_host in {None, host} else _NOBODY)

    async def resolve(
        self, target: Target, *, resolver: Resolver | None = None, timeout_s: float = 10.0
    ) -> list[Address]:
        """Look the target up once and return its addresses; raise ToolPermissionError when one is refused."""
        if target.address is not None and not self.ip_literals and target.authority not in self.operator_hosts:
            message = f"host {target.host!r} is an IP address, and built-in tools take host names only. {_NAME_REMEDY}"
            raise ToolPermissionError(message, code=REFUSED)
        if self.document_host in {None, target.ascii_host}:
            hosts = self.allow_hosts | self.operator_hosts
            return await resolve(
                target, allow_hosts=hosts, allow_private=self.allow_private, resolver=resolver, timeout_s=timeout_s
            )
        return await resolve(target, resolver=resolver, timeout_s=timeout_s, remedy=_DOCUMENT_REMEDY)


def parse_target(url: str, *, schemes: frozenset[str] = HTTP_SCHEMES) -> Target:
    """Parse the target of a URL; refuse every form that two parsers could read differently."""
    try:
        return _read_url(url, schemes)
    except _UnusableError as unusable:
        message = f"the URL{_of_host(url)} is refused: {unusable}"
        raise ToolPermissionError(message, code=REFUSED) from None


def check_credential_origin(credential: Credential, target: Target) -> None:
    """Raise ToolPermissionError when a credential is bound to another origin than that of the target."""
    if credential.origin and credential.origin != target.origin:
        msg = f"the credential is for {credential.origin} and is not sent to {target.origin}"
        raise ToolPermissionError(f"{msg}; give a credential for that origin", code=CREDENTIAL_ORIGIN)


def split_url(url: str) -> tuple[str, str]:
    """Split a URL into its origin (scheme and authority) and the rest."""
    parts = _ORIGIN.match(url)
    end = parts.end() if parts else len(url)
    return url[:end], url[end:]


def join_url(base: str, reference: str) -> str:
    """Resolve a reference against a base URL; a reference with a scheme is returned unchanged."""
    if _SCHEME.match(reference):
        return reference
    try:
        return urljoin(base, reference)
    except ValueError:
        raise ToolPermissionError("its URL is refused: it is malformed", code=REFUSED) from None


async def resolve(
    target: Target,
    *,
    allow_hosts: frozenset[str] = frozenset(),
    allow_private: bool = False,
    resolver: Resolver | None = None,
    timeout_s: float = 10.0,
    remedy: str | None = None,
) -> list[Address]:
    """Look the target up once and return its addresses; one refused address refuses them all.

    `remedy` replaces the advice in the error, for cases where an entry in `network.allow_hosts` would not help.
    """
    rules = allow_rules(allow_hosts)
    addresses = [target.address] if target.address else await _look_up(target, resolver, timeout_s)
    for address in addresses:
        reason = refusal_reason(address)
        if reason is None or (allow_private and reason in PRIVATE_REASONS):
            continue
        if not any(rule.lifts(reason, target, address) for rule in rules):
            raise _refusal(target, address, reason, remedy)
    return list(dict.fromkeys(unmap_ipv4(address) for address in addresses))


class AllowRule(Struct, frozen=True, kw_only=True):
    """One entry of `network.allow_hosts`: a name (`.example.org` for all below it) or a network, at one port or any.

    A name allows only loopback and private use, because its owner controls its DNS;
    an address or a network allows whatever it contains, cloud metadata included.
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
            host, port = _split_authority(entry[2:])
            return AllowRule(name=f".{_ascii_name(host)}", port=port)
        host, port = _split_authority(entry)
        name, address = _read_host(host)
        return AllowRule(name=name, network=ip_network(address) if address else None, port=port)
    except ValueError as wrong:
        forms = "host, *.host, host:port, an address or a network in CIDR form"
        raise ConfigError(f"network.allow_hosts: {entry!r} cannot be read ({wrong}); write {forms}.") from None


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _look_up(target: Target, resolver: Resolver | None, timeout_s: float) -> list[Address]:
    look_up = resolver or asyncio.get_running_loop().getaddrinfo
    try:
        async with asyncio.timeout(timeout_s):
            answers = await look_up(target.ascii_host, target.port, type=socket.SOCK_STREAM)
        addresses = [ip_address(answer[-1][0]) for answer in answers]
    except TimeoutError as late:
        message = f"Looking up {target.ascii_host!r} took longer than {timeout_s:g} s; check the name or the resolver."
        raise ToolConnectionError(message, sent=False, cause=late) from late
    except (OSError, ValueError) as failed:  # ValueError: an answer that is no address
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


class _UnusableError(ValueError):
    """Raised for a malformed or ambiguous URL or host; the text is the reason and never quotes the URL."""


def _read_url(url: str, schemes: frozenset[str]) -> Target:
    if _UNSAFE.search(url):
        raise _UnusableError("it contains whitespace, a control character or a backslash; percent-encode it")
    return _read_origin(split_url(url)[0], schemes)


@lru_cache(maxsize=1024)
def _read_origin(origin: str, schemes: frozenset[str]) -> Target:
    scheme, _, rest = origin.partition(":")
    scheme = scheme.lower()
    if scheme not in schemes:
        raise _UnusableError(f"only {' and '.join(sorted(schemes))} are allowed")
    if not rest.startswith("//"):
        raise _UnusableError("it has no host; write scheme://host/path")
    authority = rest[2:]
    if "@" in authority:
        raise _UnusableError("it carries credentials; configure them as the source's auth instead")
    host, port = _split_authority(authority)
    ascii_host, address = _read_host(host)
    return Target(scheme=scheme, host=host, port=port or DEFAULT_PORTS[scheme], ascii_host=ascii_host, address=address)


def _of_host(url: str) -> str:
    """Return the host for an error message, without anything that could be part of a password."""
    authority = re.split(r"[/?#\\]", url.partition("://")[2], maxsplit=1)[0]
    if "@" in authority and url.count("@") > 1:
        return ""
    host = re.sub(r":[^:\]]*$", "", authority.rpartition("@")[2])
    return f" of host {host[:80]!r}" if host else ""


def _split_authority(authority: str) -> tuple[str, int | None]:
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise _UnusableError("its host or port is malformed; an IPv6 address stands in brackets, a port is a number")
    port = int(parts["port"]) if parts["port"] else None
    if port is not None and not 0 < port <= _LAST_PORT:
        raise _UnusableError(f"its port is not between 1 and {_LAST_PORT}")
    return parts["host"], port


def _read_host(host: str) -> tuple[str, Address | None]:
    """Return a host in ASCII, and its address when it is an IP literal in canonical form."""
    if len(host) > _LONGEST_NAME:
        raise _UnusableError(f"its host is longer than {_LONGEST_NAME} characters")
    if host.startswith("["):
        address: Address = _ipv6(host[1:-1])
    elif _ends_in_number(host):
        address = _ipv4(host)
    else:
        return _ascii_name(host), None
    return str(address), address


def _ipv6(text: str) -> IPv6Address:
    if "%" in text:
        raise _UnusableError("an address with a zone id belongs to one machine's own links")
    try:
        return IPv6Address(text)
    except ValueError:
        raise _UnusableError("what stands in brackets is not an IPv6 address") from None


def _ends_in_number(host: str) -> bool:
    """Return whether some resolver would read the host as an IPv4 address (the WHATWG URL standard's own test).

    inet_aton takes one to four parts, each decimal, octal or hexadecimal; no top-level domain is a number.
    """
    folded = unicodedata.normalize("NFKC", host).replace("\u3002", ".")
    folded = "".join(str(unicodedata.decimal(character, character)) for character in folded)
    last = folded.rstrip(".").rpartition(".")[2]
    return re.fullmatch(r"[0-9]+|0[xX][0-9a-fA-F]*", last) is not None


def _ipv4(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except ValueError:
        raise _UnusableError(
            "its host is a disguised or malformed address; write four plain decimal numbers, "
            "and if it is not public list it in network.allow_hosts"
        ) from None


def _ascii_name(host: str) -> str:
    """Return a DNS name for look-up: lower case, labels in Punycode, without the root's dot."""
    normal = host.lower() if host.isascii() else _normalise(host)
    name = ".".join(_ascii_label(label) for label in normal.removesuffix(".").split("."))
    if len(name) > _LONGEST_NAME:
        raise _UnusableError(f"its host is longer than {_LONGEST_NAME} characters")
    if normal.endswith(".") and f".{name}".endswith(".localhost"):
        raise _UnusableError("localhost is written without a dot at its end")
    return name


def _normalise(host: str) -> str:
    """Normalise a host as in UTS 46, without its tables.

    ß and ς stay themselves as in IDNA 2008, unlike in the standard library's codec.
    """
    if any("." in unicodedata.normalize("NFKC", character) and character not in ".\uff0e" for character in host):
        raise _UnusableError("its host hides a dot in another character")
    composed = unicodedata.normalize("NFKC", host).replace("\u3002", ".")
    # One character at a time: str.lower() would turn a last Σ into ς, which is another name.
    return unicodedata.normalize("NFKC", "".join(character.lower() for character in composed))


def _ascii_label(label: str) -> str:
    if not label:
        raise _UnusableError("its host is empty or has an empty part")
    if not all(map(_fits_in_label, label)):
        raise _UnusableError("its host has a character that no host name has")
    encoded = label if label.isascii() else f"xn--{label.encode('punycode').decode('ascii')}"
    if len(encoded) > _LONGEST_LABEL:
        raise _UnusableError(f"a part of its host is longer than {_LONGEST_LABEL} characters")
    return encoded


def _fits_in_label(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character in "-_"
    if _VARIATION_SELECTORS.match(character):  # invisible: two names would look the same
        return False
    return unicodedata.category(character) in _IN_NAMES or character in _SPELLING


class Route(NamedTuple):
    """A target at one address that the guard allowed; TLS verifies `name`, `host` is the Host header field."""

    scheme: str
    host: str
    name: str
    port: int
    address: Address
    base: str

    @classmethod
    def to(cls, target: Target, address: Address) -> Route:
        """Build the route to a target at one of its addresses."""
        literal = f"[{address}]" if address.version == 6 else str(address)
        base = f"{target.scheme}://{literal}:{target.port}"
        return cls(target.scheme, target.host_header, target.ascii_host, target.port, address, base)

    async def connect_options(self, proxy: Proxy | None) -> dict[str, Any]:
        """Return the arguments of `create_connection`: the address or a tunnel to it, and TLS where it is needed."""
        secure = {"ssl": ssl_context(), "server_hostname": self.name} if self.scheme in _SECURE else {}
        if proxy is None:
            return {"host": str(self.address), "port": self.port, **secure}
        return {"sock": await proxy.dial(self.address, self.port), **secure}


@cache
def ssl_context() -> ssl.SSLContext:
    """Return the process's only SSL context, because creating one takes 20 ms; it offers HTTP/1.1 by ALPN."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def check_peer(peer: tuple[Any, ...] | None, address: Address) -> None:
    """Raise ToolPermissionError unless a connection's peer has the address that the guard allowed."""
    if peer is None or (peer[0] != str(address) and unmap_ipv4(ip_address(peer[0])) != address):
        message = f"the peer {peer and peer[0]} is not {address}, the address that was judged"
        raise ToolPermissionError(message, code=REFUSED)


def connect_timeout(timeout_s: float) -> float:
    """Return how long connecting may take: less than the whole, so that a failed connect is reported as one."""
    return min(_CONNECT_S, _CONNECT_SHARE * timeout_s)


def connect_error(failed: OSError, subject: str, route: Route, timeout_s: float) -> ToolConnectionError:
    """Build the error of a failed connect; nothing was sent."""
    start = f"{subject}: no connection to {route.address}"
    match failed:
        case TimeoutError() if failed.errno is None:
            return ToolConnectionError(f"{start} within {timeout_s:g} s", sent=False)
        case ssl.SSLCertVerificationError():
            message = f"{subject}: the server's certificate is refused ({failed.verify_message or failed})"
            return ToolConnectionError(message, sent=False, category=ErrorCategory.NON_RETRYABLE_CLIENT)
        case ssl.SSLError():
            return ToolConnectionError(f"{subject}: TLS failed ({failed.reason or failed})", sent=False)
        case ProxyError():
            return ToolConnectionError(f"{subject}: {failed}", sent=False)
        case _:
            reason = os.strerror(failed.errno) if failed.errno else str(failed) or type(failed).__name__
            return ToolConnectionError(f"{start} ({reason})", sent=False)


class SharedLookups:
    """Resolver that makes one look-up for all concurrent callers with the same name."""

    def __init__(self, resolver: Resolver | None = None) -> None:
        self._resolver = resolver
        self._running: dict[tuple[str, int], asyncio.Task[Iterable[tuple[Any, ...]]]] = {}

    async def __call__(self, host: str, port: int, /, *, type: int) -> Iterable[tuple[Any, ...]]:
        key = (host, port)
        if (running := self._running.get(key)) is None:
            running = self._running[key] = asyncio.create_task(self._look_up(host, port, type))
            running.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(running)  # a cancelled caller does not cancel the look-up for others

    async def close(self) -> None:
        """Cancel the look-ups that run."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _look_up(self, host: str, port: int, kind: int) -> Iterable[tuple[Any, ...]]:
        look_up = self._resolver or asyncio.get_running_loop().getaddrinfo
        return await look_up(host, port, type=kind)

    def _forget(self, key: tuple[str, int], done: asyncio.Task[Iterable[tuple[Any, ...]]]) -> None:
        del self._running[key]
        if not done.cancelled():
            done.exception()  # retrieved, so that asyncio does not log it when no caller waits any more


class _CachedRoutes(NamedTuple):
    routes: tuple[Route, ...]
    until: float


class RouteCache:
    """Cache of the routes that one policy allows.

    Routes to a name are cached for `keep_s`, so that DNS rebinding has no effect meanwhile, and then looked up and
    checked again; routes to a literal address are cached forever.
    """

    def __init__(self, policy: NetworkPolicy, lookups: SharedLookups, *, keep_s: float) -> None:
        self._policy = policy
        self._lookups = lookups
        self._keep_s = keep_s
        self._cached: dict[_Key, _CachedRoutes] = {}

    def known(self, target: Target) -> tuple[Route, ...] | None:
        """Return the cached routes to a target, if they have not expired."""
        cached = self._cached.get(_key(target))
        if cached is None or cached.until < asyncio.get_running_loop().time():
            return None
        return cached.routes

    async def find(self, target: Target, *, timeout_s: float = 10.0) -> tuple[Route, ...]:
        """Return the routes to a target, looked up if not cached; the address that answered last comes first."""
        if (cached_routes := self.known(target)) is not None:
            return cached_routes
        now = asyncio.get_running_loop().time()
        addresses = await self._policy.resolve(target, resolver=self._lookups, timeout_s=timeout_s)
        routes = tuple(Route.to(target, address) for address in addresses)
        if (old := self._cached.get(_key(target))) is not None:
            routes = tuple(sorted(routes, key=lambda route: route != old.routes[0]))
        self._keep(target, _CachedRoutes(routes, _FOREVER if target.address else now + self._keep_s))
        return routes

    def demote(self, target: Target, route: Route) -> None:
        """Move a route that does not answer to the end."""
        cached = self._cached.get(_key(target))
        if cached is not None:
            self._keep(
                target, _CachedRoutes(tuple(sorted(cached.routes, key=lambda other: other == route)), cached.until)
            )

    def forget(self, target: Target) -> None:
        """Drop the routes of a target that does not answer, so that the next request looks it up again."""
        self._cached.pop(_key(target), None)

    def _keep(self, target: Target, cached: _CachedRoutes) -> None:
        if len(self._cached) >= _MAX_CACHED:
            self._cached.pop(next(iter(self._cached)))
        self._cached[_key(target)] = cached


def _key(target: Target) -> _Key:
    return target.scheme, target.ascii_host, target.port
