"""HTTP requests: header fields, the request, and the request that a redirect asks for."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias
from urllib.parse import quote

from toolpost.contracts.errors import ToolPermissionError, ToolValidationError
from toolpost.wire.network import REFUSED, join_url, parse_target, split_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterator, Mapping

    Pairs = tuple[tuple[str, str], ...]
    HeaderInput = Mapping[str, str] | Pairs
    RequestBody: TypeAlias = bytes | AsyncIterable[bytes] | None

# RFC 9110 §7.6.1: these speak about one connection; the others here are the connection's own business too,
# and whoever could set them could make one request look like two, or be meant for another host.
MANAGED_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A tab is the only control character that a value may have; a lone surrogate cannot be encoded.
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")

REDIRECTS = frozenset({301, 302, 303, 307, 308})
Follow = Literal["safe", "all", "none"]

_SAFE_METHODS = frozenset({"GET", "HEAD"})
# Fields that any origin may read. All others, Authorization, Cookie and keys of every name, were meant for one origin.
_HARMLESS = frozenset({"accept", "accept-encoding", "accept-language", "cache-control", "range", "user-agent"})
# RFC 3986 §2 leaves these out; brackets are let through, for servers that read them in queries.
_NOT_IN_URL = re.compile(r"""[^!-~]|["<>^`{|}]""")


class Headers:
    """Header fields of a response, in order and with repetitions; names are matched in any case."""

    __slots__ = ("_first", "pairs")

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self._first = {name.lower(): value for name, value in reversed(pairs)}

    def get(self, name: str) -> str | None:
        """Return the first value of a field."""
        return self._first.get(name.lower())

    def get_all(self, name: str) -> tuple[str, ...]:
        """Return every value of a field, in order."""
        wanted = name.lower()
        return tuple(value for written, value in self.pairs if written.lower() == wanted)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"Headers({[name for name, _ in self.pairs]})"  # values may be cookies and tokens


def clean_headers(headers: HeaderInput, *, defaults: Pairs = ()) -> Pairs:
    """Return the fields to send, followed by the defaults that they do not override.

    Raises a ToolValidationError that names the fields that may not be sent.
    """
    pairs: list[tuple[str, str]] = []
    issues: list[str] = []
    given: set[str] = set()
    for name, value in headers if isinstance(headers, tuple) else headers.items():
        lowered, issue = _read_name(name)
        if issue is None and _UNSENDABLE.search(value):
            issue = f"header {name!r} has a line break or another control character in its value"
        if issue is not None:
            issues.append(issue)
        given.add(lowered)
        pairs.append((name, value.strip(" \t")))
    if issues:
        raise ToolValidationError(issues)
    for pair in defaults:
        if _read_name(pair[0])[0] not in given:
            pairs.append(pair)  # noqa: PERF401 - on the way of every request
    return tuple(pairs)


def check_method(method: str) -> str:
    """Return the method in upper case; raise ToolValidationError when it may not be sent."""
    if method in _METHODS:
        return method
    if not _TOKEN.fullmatch(method) or method.upper() == "CONNECT":  # a tunnel is no request
        raise ToolValidationError(f"{method[:40]!r} is not a method that can be sent")
    return method.upper()


@lru_cache(maxsize=1024)
def _read_name(name: str) -> tuple[str, str | None]:
    """Return a field name in lower case, and what is wrong with it."""
    lowered = name.lower()
    if not _TOKEN.fullmatch(name):
        return lowered, f"{name[:80]!r} is not the name of a header"
    if lowered in MANAGED_HEADERS:
        return lowered, f"header {name!r} belongs to the connection and cannot be set"
    return lowered, None


class Request(NamedTuple):
    """One request; the client's defaults apply to fields that are None.

    `follow` selects the redirects to follow: those of GET and HEAD, those of every method, or none. `max_bytes`
    limits the response's body after decompression; `timeout_s` covers everything, redirects and body included.
    """

    method: str
    url: str
    headers: HeaderInput = ()
    body: RequestBody = None
    timeout_s: float | None = None
    max_bytes: int | None = None
    follow: Follow = "safe"

    def __repr__(self) -> str:
        return f"Request({self.method!r})"  # a path or a query may hold a key

    @property
    def subject(self) -> str:
        """Name the request in errors: method and origin, because a path or a query may hold a key."""
        return f"{self.method} {split_url(self.url)[0]}"

    @property
    def header_pairs(self) -> Pairs:
        """The header fields as pairs."""
        return self.headers if isinstance(self.headers, tuple) else tuple(self.headers.items())


def request_path(url: str) -> str:
    """Return the path and query of a URL for the request line, in ASCII and without the fragment."""
    path = split_url(url)[1]
    if "#" in path:
        path = path.partition("#")[0]
    if not path.startswith("/"):
        path = f"/{path}"
    if _NOT_IN_URL.search(path) is None:
        return path
    return _NOT_IN_URL.sub(lambda found: quote(found[0]), path)


def redirect_request(request: Request, status: int, headers: Headers) -> Request | None:
    """Build the request that a redirect asks for; None when the redirect is not to be followed.

    A body is sent again only to the origin that already had it.
    """
    if status not in REDIRECTS or not (location := headers.get("location")) or not _is_followed(request):
        return None
    url = join_url(request.url, location)
    source, target = parse_target(request.url), parse_target(url)
    if (source.scheme, target.scheme) == ("https", "http"):
        raise ToolPermissionError(f"it leads to {target.host!r} without TLS", code=REFUSED)
    method, kept, body = _redirect_method(request.method, status), request.header_pairs, request.body
    if method != request.method:
        kept, body = tuple(pair for pair in kept if not pair[0].lower().startswith("content-")), None
    if (source.scheme, source.authority) != (target.scheme, target.authority):
        if body is not None:
            return None
        kept = tuple(pair for pair in kept if pair[0].lower() in _HARMLESS)
    return request._replace(method=method, url=url, headers=kept, body=body)


def _is_followed(request: Request) -> bool:
    if request.follow == "all":
        return isinstance(request.body, bytes | None)  # a stream is gone once it was sent
    return request.follow == "safe" and request.method in _SAFE_METHODS


def _redirect_method(method: str, status: int) -> str:
    """RFC 9110 §15.4: 307 and 308 keep the method; the older codes turn a POST into a GET, and 303 everything."""
    if status in {307, 308} or method in _SAFE_METHODS:
        return method
    return "GET" if status == 303 or method == "POST" else method
