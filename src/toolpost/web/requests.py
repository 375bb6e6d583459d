"""Build requests from arguments: URLs, encodings, credentials, and sending."""

from __future__ import annotations

import base64
import json
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

from toolpost.catalog.specs import SAFE_METHODS
from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolSchemaError, ToolTimeoutError
from toolpost.contracts.fast_namedtuple import fast_constructor
from toolpost.schema.json_values import json_type
from toolpost.web.content import parse_media_type
from toolpost.wire.messages import Follow, Request, Response

if TYPE_CHECKING:
    from toolpost.contracts.calls import Credential
    from toolpost.contracts.errors import ToolNodeError
    from toolpost.wire.client import HttpClient

Pair: TypeAlias = tuple[str, str]

# RFC 6265's cookie-octets, without `%`: servers that decode cookies and servers that do not read the same value.
_COOKIE_OCTETS = "!#$&'()*+/:<=>?@[]^`{|}"
_COOKIE_NAME = "!#$&'*+^`|"
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*")
_PERCENT = [quote(bytes([octet]), safe="") for octet in range(256)]  # looked up three times faster than quoted
_UNQUOTABLE = re.compile(r'[\x00-\x1f"\x7f]')
_UNFIT_FOR_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class UnsendableError(ValueError):
    """Raised for a value that its place cannot carry; the text is the reason and never quotes the value."""


def compact_json(value: Any) -> str:
    """Encode a value as JSON in ASCII, which is valid in every charset."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsendableError(f"it is not JSON: {error}") from error


def format_value(value: Any) -> str:
    """Format one value as text, not yet percent-encoded; objects and arrays become JSON."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return _integer_text(value)
        case float() | Decimal():
            return _number_text(value)
        case dict() | list():
            return compact_json(value)
        case _:
            raise UnsendableError(f"it is {json_type(value)}, which has no text")


def percent_encode(text: str) -> str:
    """Percent-encode everything but RFC 3986's unreserved characters."""
    return text if _UNRESERVED.fullmatch(text) else "".join(map(_PERCENT.__getitem__, text.encode()))


def encode_cookie_name(text: str) -> str:
    """Encode the name of a cookie."""
    return quote(text, safe=_COOKIE_NAME)


def encode_cookie_value(text: str) -> str:
    """Encode the value of a cookie."""
    return quote(text, safe=_COOKIE_OCTETS)


def check_header_value(text: str) -> str:
    """Return a text that a header can carry, sent as UTF-8; raise UnsendableError otherwise."""
    if _UNFIT_FOR_HEADER.search(text):
        raise UnsendableError("it holds a line break or another control character, which a header cannot carry")
    if text != text.strip(" \t"):
        raise UnsendableError("it begins or ends with white space, which a header cannot carry")
    text.encode()  # half of a surrogate pair has no bytes
    return text


def _integer_text(value: int) -> str:
    try:
        return str(int(value))  # `int` also for members of an enum
    except ValueError as error:
        raise UnsendableError("it is a number of thousands of digits") from error


def _number_text(value: float | Decimal) -> str:
    """Format a number without exponent; a whole one without fraction, because `3.0` is an integer to JSON Schema."""
    if not math.isfinite(value):
        raise UnsendableError("it is not a finite number")
    if value == int(value):
        return str(int(value))
    return format(Decimal(repr(value)) if isinstance(value, float) else value, "f")


class FormPart(NamedTuple):
    """One part of a multipart body; with a `filename` it is a file."""

    name: str
    data: bytes
    content_type: str | None = None
    filename: str | None = None
    headers: tuple[Pair, ...] = ()


def encode_multipart(parts: Iterable[FormPart]) -> tuple[bytes, str]:
    """Encode a multipart body (RFC 7578); return it with the boundary for its Content-Type."""
    boundary = secrets.token_hex(16)
    opening = b"--" + boundary.encode()
    pieces = [piece for part in parts for piece in (opening, _part_head(part), part.data)]
    return b"\r\n".join([*pieces, opening + b"--", b""]), boundary


def _part_head(part: FormPart) -> bytes:
    disposition = f'form-data; name="{_quoted(part.name)}"'
    if part.filename is not None:
        disposition += f'; filename="{_quoted(part.filename)}"'
    lines = [f"Content-Disposition: {disposition}"]
    if part.content_type:
        lines.append(f"Content-Type: {check_header_value(part.content_type)}")
    lines += [f"{check_header_value(name)}: {check_header_value(value)}" for name, value in part.headers]
    return "\r\n".join([*lines, ""]).encode()


def _quoted(text: str) -> str:
    """Escape a name for quotes: browsers and RFC 7578 write UTF-8, and percent-encode what would end the quotes."""
    return _UNQUOTABLE.sub(lambda found: f"%{ord(found[0]):02X}", text)


Send: TypeAlias = Callable[["PlannedRequest"], Awaitable["Response"]]
_new_request = fast_constructor(Request)

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_DOT_SEGMENTS = frozenset({".", ".."})
_LITERAL = "/:@!$&'()*+,;=%?"
_STREAM_TIME_SHARE = 0.9  # a stream is cut before the call's own timeout, so that what came is returned
_STREAM_ENDS = {"events": b"\n\n", "lines": b"\n"}


class PathParameter(NamedTuple):
    """A placeholder in a URL template, as `written` and by its `name`.

    `spanning` stands for `{+name}` or `{name+}`: its value may hold slashes.
    """

    written: str
    name: str
    spanning: bool


class UrlTemplate(NamedTuple):
    """The parsed URL of an operation: literals and path parameters in turn."""

    server: str
    pieces: tuple[str | PathParameter, ...]
    query: tuple[Pair, ...]


class BuiltUrl(NamedTuple):
    """A URL without its query, and the query that the template itself has."""

    address: str
    query: tuple[Pair, ...]


def build_url(server: str, path: str, fill: Callable[[PathParameter], str]) -> BuiltUrl:
    """Build a URL from its template; refuse values that would change the structure of the path."""
    template = parse_url_template(server, path)
    filled = "".join(piece if isinstance(piece, str) else fill(piece) for piece in template.pieces)
    path, _, fixed = filled.partition("?")
    if "." in path and not _DOT_SEGMENTS.isdisjoint(path.split("/")):
        raise UnsendableError("the values make a step '.' or '..', which would lead to another path")
    return BuiltUrl(template.server + path, (*template.query, *split_query(fixed)))


@lru_cache(maxsize=4096)
def parse_url_template(server: str, path: str) -> UrlTemplate:
    """Parse the server and the path of a document; a fragment only tells operations apart and is never sent."""
    try:
        base = urlsplit(server)
        usable = base.scheme in ("http", "https") and bool(base.hostname)
    except ValueError:
        usable = False
        base = urlsplit("")
    if not usable:
        raise ToolSchemaError(f"The server {server!r} is not an http or https URL; give one with base_url.")
    pieces = _PLACEHOLDER.split(path.partition("#")[0])
    read = [_path_parameter(piece) if at % 2 else quote(piece, safe=_LITERAL) for at, piece in enumerate(pieces)]
    below = quote(base.path, safe=_LITERAL).rstrip("/")
    gap = "" if path.startswith("/") else "/"
    return UrlTemplate(f"{base.scheme}://{base.netloc}{below}{gap}", tuple(read), split_query(base.query))


def split_query(query: str) -> tuple[Pair, ...]:
    """Split a query that is already encoded into its pairs."""
    return tuple((name, value) for part in query.split("&") if part for name, _, value in [part.partition("=")])


def _path_parameter(text: str) -> PathParameter:
    name = text.strip("+*")
    return PathParameter(text, name, text != name)


class Presentation(NamedTuple):
    """Credential parts of one request by place, not yet encoded; `tokens` can be renewed when they are refused."""

    headers: tuple[Pair, ...] = ()
    query: tuple[Pair, ...] = ()
    cookies: tuple[Pair, ...] = ()
    tokens: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Presentation({len(self.secrets)} secrets)"

    def joined(self, other: Presentation) -> Presentation:
        """Return the parts of both."""
        return Presentation(
            headers=self.headers + other.headers,
            query=self.query + other.query,
            cookies=self.cookies + other.cookies,
            tokens=self.tokens + other.tokens,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value, also a token without the scheme before it."""
        if self is NOTHING:
            return ()
        values = [value for place in (self.headers, self.query, self.cookies) for _, value in place]
        inner = [_inside(value) for value in values if " " in value]
        return tuple(dict.fromkeys([*values, *(secret for pair in inner for secret in pair)]))


def _inside(header: str) -> tuple[str, ...]:
    """Return the value behind an auth scheme; for `Basic` also the decoded password."""
    word, _, value = header.partition(" ")
    if word.lower() != "basic":
        return (value,)
    try:
        return value, base64.b64decode(value).decode().partition(":")[2]
    except ValueError:
        return (value,)


NOTHING = Presentation()


def present_headers(credential: Credential) -> Presentation:
    """Return the headers of a credential as they are; its cookies join those of the request."""
    if not credential.headers:
        return NOTHING
    cookies = [value.partition("=") for name, value in credential.headers.items() if name.lower() == "cookie"]
    return Presentation(
        headers=tuple((name, value) for name, value in credential.headers.items() if name.lower() != "cookie"),
        cookies=tuple((name, value) for name, _, value in cookies),
    )


def present_key(location: Literal["header", "query", "cookie"], name: str, key: str) -> Presentation:
    """Return an API key at its place in the request."""
    pair = ((name, key),)
    match location:
        case "query":
            return Presentation(query=pair)
        case "cookie":
            return Presentation(cookies=pair)
        case "header":
            return Presentation(headers=pair)


class PlannedRequest(NamedTuple):
    """A request before it is sent; its credential is apart in `presented` and shows only in `wire_url` and the like.

    Names and values are encoded as they are sent; header values are sent as UTF-8.
    """

    method: str
    address: str
    query: tuple[Pair, ...] = ()
    headers: tuple[Pair, ...] = ()
    cookies: tuple[Pair, ...] = ()
    body: bytes | None = None
    presented: Presentation = NOTHING

    def __repr__(self) -> str:
        return f"PlannedRequest({self.method!r}, {self.address!r})"

    @property
    def url(self) -> str:
        """The URL without secrets, for messages."""
        return _with_query(self.address, self.query)

    @property
    def wire_url(self) -> str:
        """The URL with the credential, only for sending."""
        if not self.presented.query:
            return self.url
        secret = [(percent_encode(name), percent_encode(value)) for name, value in self.presented.query]
        return _with_query(self.address, _overlaid(self.query, secret))

    @property
    def wire_headers(self) -> tuple[Pair, ...]:
        """The headers with the credential and the cookies, only for sending."""
        if self.presented is NOTHING and not self.cookies:
            return self.headers
        baked = [(encode_cookie_name(name), encode_cookie_value(value)) for name, value in self.presented.cookies]
        cookies = _overlaid(self.cookies, baked)
        # RFC 6265 section 5.4: a request has at most one Cookie header.
        jar = [("Cookie", "; ".join(f"{name}={value}" for name, value in cookies))] if cookies else []
        return (*_overlaid(self.headers, self.presented.headers, key=str.lower), *jar)

    def to_wire(self, timeout_s: float | None, max_bytes: int | None, follow: Follow = "safe") -> Request:
        """Build the request that the HTTP client sends, with the credential and these limits."""
        return _new_request((self.method, self.wire_url, self.wire_headers, self.body, timeout_s, max_bytes, follow))

    def with_headers(self, headers: Sequence[Pair]) -> PlannedRequest:
        """Return the request with the operator's headers, which replace arguments of the same names."""
        return self._replace(headers=tuple(_overlaid(self.headers, headers, key=str.lower))) if headers else self

    def presenting(self, presented: Presentation) -> PlannedRequest:
        """Return the request with a credential, which replaces arguments of the same names."""
        return self if presented is self.presented else self._replace(presented=presented)


def _overlaid(pairs: Sequence[Pair], over: Sequence[Pair], *, key: Callable[[str], str] = str) -> list[Pair]:
    if not over:
        return [*pairs]
    names = {key(name) for name, _ in over}
    return [*(pair for pair in pairs if key(pair[0]) not in names), *over]


def _with_query(address: str, pairs: Sequence[Pair]) -> str:
    return f"{address}?{'&'.join(f'{name}={value}' for name, value in pairs)}" if pairs else address


def make_sender(
    client: HttpClient, *, timeout_s: float | None = None, max_bytes: int | None = None, reads: bool = False
) -> Send:
    """Return a function that sends requests through a client; the client's limits apply where none are given.

    `reads` says that the requests change nothing, whatever their method.
    """

    async def send(planned: PlannedRequest) -> Response:
        try:
            response = await client.send(planned.to_wire(timeout_s, max_bytes))
            end = _STREAM_ENDS.get(parse_media_type(response.headers.get("content-type") or "").kind)
            if end is None:
                await response.read()
            else:
                await _read_stream(response, end)
            return response
        except (ToolConnectionError, ToolTimeoutError, ToolClientError) as failed:
            if not reads and planned.method not in SAFE_METHODS:
                _add_doubt(failed)
            raise

    return send


def _add_doubt(failed: ToolNodeError) -> None:
    """Add to an error that a request without a readable response may have taken effect."""
    if not isinstance(failed, ToolConnectionError) or failed.sent:
        failed.message = f"{failed.message}; it may have taken effect all the same"
        failed.args = (failed.message,)


async def _read_stream(response: Response, end: bytes) -> None:
    """Read a stream; when its time or size limit is up, keep the items that are complete."""
    body = bytearray()
    try:
        async for piece in response.stream(share_of_time=_STREAM_TIME_SHARE):
            body += piece
    except (ToolTimeoutError, ToolClientError):
        whole, found, _ = bytes(body).replace(b"\r\n", b"\n").rpartition(end)
        if not found:
            raise
        response.body, response.is_cut = whole + end, True
    else:
        response.body = bytes(body)
