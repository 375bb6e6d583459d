"""HTTP requests of sources: built without the credential, which is added for sending, and sent within limits."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from toolpost.catalog.specs import SAFE_METHODS
from toolpost.contracts import errors
from toolpost.http.content import parse_media_type
from toolpost.http.encoding import Pair, encode_cookie_name, encode_cookie_value, percent_encode
from toolpost.processes.json_documents import check_large_json
from toolpost.schema.json_size import SMALL, JsonLimits
from toolpost.wire.messages import Follow, Request, Response

if TYPE_CHECKING:
    from toolpost.auth.oauth.client_tokens import ClientToken
    from toolpost.contracts.calls import Credential
    from toolpost.wire.client import HttpClient

Send: TypeAlias = "Callable[[PlannedRequest], Awaitable[Response]]"

_MOST_SHOWN = 8000  # bytes of a body in a preview
STREAM_CUT = "The stream was cut off; this is the part received until then."
# Stop reading a stream before the call times out, so that the call returns the items received until then.
_STREAM_TIME_SHARE = 0.9
_STREAM_ENDS = {"events": b"\n\n", "lines": b"\n"}


class Presentation(NamedTuple):
    """Credential of one request by location, not yet encoded; `tokens` can be renewed if they are rejected."""

    headers: tuple[Pair, ...] = ()
    query: tuple[Pair, ...] = ()
    cookies: tuple[Pair, ...] = ()
    tokens: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Presentation({len(self.secrets)} secrets)"

    def joined(self, other: Presentation) -> Presentation:
        return Presentation(
            headers=self.headers + other.headers,
            query=self.query + other.query,
            cookies=self.cookies + other.cookies,
            tokens=self.tokens + other.tokens,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """All secret values, including tokens without their authentication scheme."""
        if self is NOTHING:
            return ()
        values = [value for place in (self.headers, self.query, self.cookies) for _, value in place]
        inner = [_inside(value) for value in values if " " in value]
        return tuple(dict.fromkeys([*values, *(secret for pair in inner for secret in pair)]))


def _inside(header: str) -> tuple[str, ...]:
    """Return the value after an authentication scheme; for `Basic` also the decoded password."""
    word, _, value = header.partition(" ")
    if word.lower() != "basic":
        return (value,)
    try:
        return value, base64.b64decode(value).decode().partition(":")[2]
    except ValueError:
        return (value,)


NOTHING = Presentation()


def describe_request(request: PlannedRequest) -> dict[str, Any]:
    """Return a request as data for approvers; its credential is not part of it."""
    headers = [{"name": name, "value": value} for name, value in request.headers]
    cookies = [{"name": "Cookie", "value": f"{name}={value}"} for name, value in request.cookies]
    kind = next((value for name, value in request.headers if name.lower() == "content-type"), None)
    return {
        "kind": "http_request",
        "method": request.method,
        "url": unquote(request.address),
        "query": [{"name": unquote(name), "value": unquote(value)} for name, value in request.query],
        "headers": headers + cookies,
        "content_type": kind,
        "body": None if request.body is None else request.body[:_MOST_SHOWN].decode("utf-8", "replace"),
        "body_size": 0 if request.body is None else len(request.body),
    }


class PlannedRequest(Struct, frozen=True):
    """A request without its credential, which is in `presented` and appears only in the `wire_` properties.

    Names and values are already encoded; header values are sent as UTF-8.
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
        return Request(self.method, self.wire_url, self.wire_headers, self.body, timeout_s, max_bytes, follow)

    def with_headers(self, headers: Sequence[Pair]) -> PlannedRequest:
        """Add the operator's headers; they replace arguments of the same names."""
        return replace(self, headers=tuple(_overlaid(self.headers, headers, key=str.lower))) if headers else self

    def presenting(self, presentation: Presentation) -> PlannedRequest:
        """Add a credential; it replaces arguments of the same names."""
        return self if presentation is self.presented else replace(self, presented=presentation)


def _overlaid(pairs: Sequence[Pair], over: Sequence[Pair], *, key: Callable[[str], str] = str) -> list[Pair]:
    if not over:
        return [*pairs]
    names = {key(name) for name, _ in over}
    return [*(pair for pair in pairs if key(pair[0]) not in names), *over]


def _with_query(address: str, pairs: Sequence[Pair]) -> str:
    return f"{address}?{'&'.join(f'{name}={value}' for name, value in pairs)}" if pairs else address


def present_headers(credential: Credential) -> Presentation:
    """Present the headers of a credential; its cookies are merged with those of the request."""
    if not credential.headers:
        return NOTHING
    cookies = [value.partition("=") for name, value in credential.headers.items() if name.lower() == "cookie"]
    return Presentation(
        headers=tuple((name, value) for name, value in credential.headers.items() if name.lower() != "cookie"),
        cookies=tuple((name, value) for name, _, value in cookies),
    )


def present_key(location: Literal["header", "query", "cookie"], name: str, key: str) -> Presentation:
    """Present an API key at its location in the request."""
    pair = ((name, key),)
    match location:
        case "query":
            return Presentation(query=pair)
        case "cookie":
            return Presentation(cookies=pair)
        case "header":
            return Presentation(headers=pair)


def present_token(token: ClientToken) -> Presentation:
    """Present a client's access token as a header; if it is rejected, it can be renewed."""
    return Presentation(headers=(("Authorization", f"{token.scheme} {token.value}"),), tokens=(token.value,))


def make_sender(
    client: HttpClient,
    *,
    timeout_s: float | None = None,
    max_bytes: int | None = None,
    reads: bool = False,
    limits: JsonLimits | None = None,
) -> Send:
    """Return a function that sends requests; `timeout_s` and `max_bytes` default to the client's limits.

    With `reads`, the requests change nothing, regardless of their method. With `limits`, a JSON body of many values
    is checked in another process.
    """

    async def send(planned: PlannedRequest) -> Response:
        try:
            response = await client.send(planned.to_wire(timeout_s, max_bytes))
            end = _STREAM_ENDS.get(parse_media_type(response.headers.get("content-type") or "").kind)
            if end is None:
                body = await response.read()
                if limits is not None and len(body) > SMALL:
                    response.body = await check_large_json(body, limits)
            else:
                await _read_stream(response, end)
            return response
        except (errors.ToolConnectionError, errors.ToolTimeoutError, errors.ToolClientError) as failed:
            was_sent = not isinstance(failed, errors.ToolConnectionError) or failed.sent
            if was_sent and not reads and planned.method not in SAFE_METHODS:
                failed.message = f"{failed.message}; it may have taken effect"
                failed.args = (failed.message,)
            raise

    return send


async def _read_stream(response: Response, end: bytes) -> None:
    """Read a stream; at its time or size limit, keep the complete items."""
    body = bytearray()
    try:
        async for piece in response.stream(share_of_time=_STREAM_TIME_SHARE):
            body += piece
    except (errors.ToolTimeoutError, errors.ToolClientError):
        whole, separator, _ = bytes(body).replace(b"\r\n", b"\n").rpartition(end)
        if not separator:
            raise
        response.body, response.is_cut = whole + end, True
    else:
        response.body = bytes(body)
