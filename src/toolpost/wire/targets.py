"""Targets of URLs: scheme, host and port.

Every form of a URL or host that two parsers could read differently is refused.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from msgspec import Struct

from toolpost.contracts.errors import ToolPermissionError

if TYPE_CHECKING:
    from toolpost.wire.addresses import Address

HTTP_SCHEMES = frozenset({"http", "https"})
WEBSOCKET_SCHEMES = frozenset({"ws", "wss"})
DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
REFUSED = "address_refused"
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


class Target(Struct, frozen=True, kw_only=True):
    """Scheme, host and port of a URL; `ascii_host` is the name to resolve, `address` is set for an IP literal."""

    scheme: str
    host: str
    port: int
    ascii_host: str
    address: Address | None = None

    @property
    def authority(self) -> str:
        """The host, an IPv6 address in brackets, with its port."""
        return f"{bracket(self.ascii_host)}:{self.port}"

    @property
    def host_header(self) -> str:
        """The value of the Host header field, without the scheme's default port."""
        return bracket(self.ascii_host) if DEFAULT_PORTS[self.scheme] == self.port else self.authority

    @property
    def origin(self) -> str:
        """Scheme, host and port, without the scheme's default port."""
        return f"{self.scheme}://{self.host_header}"


def parse_target(url: str, *, schemes: frozenset[str] = HTTP_SCHEMES) -> Target:
    """Parse the target of a URL; refuse every form that two parsers could read differently."""
    try:
        return _read_url(url, schemes)
    except UnusableUrlError as unusable:
        raise ToolPermissionError(f"the URL{_of_host(url)} is refused: {unusable}", code=REFUSED) from None


def is_http_url(address: str) -> bool:
    """Return whether an address is an http or https URL, not a path or a command."""
    return address[:8].lower().startswith(("http://", "https://"))


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


def split_authority(authority: str) -> tuple[str, int | None]:
    """Split an authority into its host and its port, if it has one."""
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise UnusableUrlError(
            "its host or port is malformed; write an IPv6 address in brackets and a port as a number"
        )
    port = int(parts["port"]) if parts["port"] else None
    if port is not None and not 0 < port <= _LAST_PORT:
        raise UnusableUrlError(f"its port is not between 1 and {_LAST_PORT}")
    return parts["host"], port


def read_host(host: str) -> tuple[str, Address | None]:
    """Return a host in ASCII, and its address if it is an IP literal in canonical form."""
    if len(host) > _LONGEST_NAME:
        raise UnusableUrlError(f"its host is longer than {_LONGEST_NAME} characters")
    if host.startswith("["):
        address: Address = _ipv6(host[1:-1])
    elif _ends_in_number(host):
        address = _ipv4(host)
    else:
        return ascii_name(host), None
    return str(address), address


def ascii_name(host: str) -> str:
    """Return a DNS name for look-up: lower case, labels in Punycode, without the root's dot."""
    normal = host.lower() if host.isascii() else _normalize(host)
    name = ".".join(_ascii_label(label) for label in normal.removesuffix(".").split("."))
    if len(name) > _LONGEST_NAME:
        raise UnusableUrlError(f"its host is longer than {_LONGEST_NAME} characters")
    if normal.endswith(".") and f".{name}".endswith(".localhost"):
        raise UnusableUrlError("write localhost without a trailing dot")
    return name


class UnusableUrlError(ValueError):
    """Raised for a malformed or ambiguous URL or host; the text is the reason and never quotes the URL."""


def _read_url(url: str, schemes: frozenset[str]) -> Target:
    if _UNSAFE.search(url):
        raise UnusableUrlError("it contains whitespace, a control character or a backslash; percent-encode it")
    return _read_origin(split_url(url)[0], schemes)


@lru_cache(maxsize=1024)
def _read_origin(origin: str, schemes: frozenset[str]) -> Target:
    scheme, _, rest = origin.partition(":")
    scheme = scheme.lower()
    if scheme not in schemes:
        raise UnusableUrlError(f"only {' and '.join(sorted(schemes))} are allowed")
    if not rest.startswith("//"):
        raise UnusableUrlError("it has no host; write scheme://host/path")
    authority = rest[2:]
    if "@" in authority:
        raise UnusableUrlError("it contains credentials; configure them as the source's auth instead")
    host, port = split_authority(authority)
    ascii_host, address = read_host(host)
    return Target(scheme=scheme, host=host, port=port or DEFAULT_PORTS[scheme], ascii_host=ascii_host, address=address)


def _of_host(url: str) -> str:
    """Return the host for an error message, without any part of a password."""
    authority = re.split(r"[/?#\\]", url.partition("://")[2], maxsplit=1)[0]
    if "@" in authority and url.count("@") > 1:
        return ""
    host = re.sub(r":[^:\]]*$", "", authority.rpartition("@")[2])
    return f" of host {host[:80]!r}" if host else ""


def _ipv6(text: str) -> IPv6Address:
    if "%" in text:
        raise UnusableUrlError("an address with a zone id is valid only on one machine")
    try:
        return IPv6Address(text)
    except ValueError:
        raise UnusableUrlError("the text in brackets is not an IPv6 address") from None


def _ends_in_number(host: str) -> bool:
    """Return whether a resolver could read the host as an IPv4 address (test of the WHATWG URL standard).

    inet_aton accepts one to four parts, each decimal, octal or hexadecimal; no top-level domain is a number.
    """
    folded = unicodedata.normalize("NFKC", host).replace("\u3002", ".")
    folded = "".join(str(unicodedata.decimal(character, character)) for character in folded)
    last = folded.rstrip(".").rpartition(".")[2]
    return re.fullmatch(r"[0-9]+|0[xX][0-9a-fA-F]*", last) is not None


def _ipv4(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except ValueError:
        raise UnusableUrlError(
            "its host is a disguised or malformed address; write four plain decimal numbers, "
            "and if it is not public list it in network.allow_hosts"
        ) from None


def _normalize(host: str) -> str:
    """Normalize a host as in UTS 46, without its tables.

    ß and ς are kept as in IDNA 2008, unlike in the standard library's codec.
    """
    if any("." in unicodedata.normalize("NFKC", character) and character not in ".\uff0e" for character in host):
        raise UnusableUrlError("its host hides a dot in another character")
    composed = unicodedata.normalize("NFKC", host).replace("\u3002", ".")
    # One character at a time: str.lower() would turn a last Σ into ς, which is another name.
    return unicodedata.normalize("NFKC", "".join(character.lower() for character in composed))


def _ascii_label(label: str) -> str:
    if not label:
        raise UnusableUrlError("its host is empty or has an empty part")
    if not all(map(_fits_in_label, label)):
        raise UnusableUrlError("its host contains a character that is not allowed in host names")
    encoded = label if label.isascii() else f"xn--{label.encode('punycode').decode('ascii')}"
    if len(encoded) > _LONGEST_LABEL:
        raise UnusableUrlError(f"a part of its host is longer than {_LONGEST_LABEL} characters")
    return encoded


def _fits_in_label(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character in "-_"
    if _VARIATION_SELECTORS.match(character):  # invisible: two names would look the same
        return False
    return unicodedata.category(character) in _IN_NAMES or character in _SPELLING


def bracket(host: str) -> str:
    """Return a host for a URL; an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
