"""Redirects: the request to send next, without header fields that belong to one origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolpost.contracts.errors import ToolPermissionError
from toolpost.wire.targets import REFUSED, join_url, parse_target

if TYPE_CHECKING:
    from toolpost.wire.messages import Headers, Request

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAFE_METHODS = frozenset({"GET", "HEAD"})
# Fields that any origin may read. All others, such as Authorization, Cookie and keys, belong to one origin.
_HARMLESS = frozenset({"accept", "accept-encoding", "accept-language", "cache-control", "range", "user-agent"})


def redirect_request(request: Request, status: int, headers: Headers) -> Request | None:
    """Build the request of a redirect; None if the redirect is not followed.

    A body is sent again only to the origin that already received it.
    """
    if status not in REDIRECTS or not (location := headers.get("location")) or not _is_followed(request):
        return None
    url = join_url(request.url, location)
    source, target = parse_target(request.url), parse_target(url)
    if (source.scheme, target.scheme) == ("https", "http"):
        raise ToolPermissionError(f"it leads to {target.host!r} without TLS", code=REFUSED)
    method, pairs, body = _redirect_method(request.method, status), request.header_pairs, request.body
    if method != request.method:
        pairs, body = tuple(pair for pair in pairs if not pair[0].lower().startswith("content-")), None
    if (source.scheme, source.authority) != (target.scheme, target.authority):
        if body is not None:
            return None
        pairs = tuple(pair for pair in pairs if pair[0].lower() in _HARMLESS)
    return replace(request, method=method, url=url, headers=pairs, body=body)


def _is_followed(request: Request) -> bool:
    if request.follow == "all":
        return isinstance(request.body, bytes | None)  # a stream cannot be sent twice
    return request.follow == "safe" and request.method in _SAFE_METHODS


def _redirect_method(method: str, status: int) -> str:
    """Return the next method; 307 and 308 keep it, 301 and 302 change POST to GET, 303 all (RFC 9110 section 15.4)."""
    if status in {307, 308} or method in _SAFE_METHODS:
        return method
    return "GET" if status == 303 or method == "POST" else method
