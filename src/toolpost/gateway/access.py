"""ASGI middleware in front of everything: host and origin, size of headers, who is calling, how often, and headers."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolpost.contracts.callers import OPERATOR_ID, SCOPES
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.gateway.problems import Problem, ProblemResponse, problem_of
from toolpost.wire.http_server import AUTHENTICATED

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from toolpost.contracts.callers import Caller
    from toolpost.gateway.callers import Callers
    from toolpost.gateway.rates import Rates

CALLER = "toolpost.caller"
METADATA = "/.well-known/oauth-protected-resource"
AGENT_CARD = "/.well-known/agent-card.json"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_OPEN = frozenset({"/healthz", "/readyz", "/openapi.json", AGENT_CARD})
_OPEN_BELOW = (METADATA, "/oauth/")
_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")
_SINGLE = (b"host", b"origin", b"authorization")
_HEADER_BYTES, _HEADERS = 32 * 1024, 100
_SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by name or by address."""
    if host in _LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Access:
    """Let requests through to `app` that are for this host and from a known caller, who stands in the scope then.

    It is reached at `public_url`, and by the names of this machine. `/mcp` is for callers with the scope
    `call`; the operations of the REST interface check scopes themselves. The bearer goes no further than this. A
    caller other than the operator has at most `concurrent_requests` at a time: each, above all an event stream, takes
    a connection from the others.
    `metadata_url` tells clients where they learn of whom they get tokens.
    """

    def __init__(
        self,
        app: ASGIApp,
        callers: Callers,
        *,
        public_url: str = "",
        rates: Rates,
        concurrent_requests: int,
        metadata_url: str | None = None,
    ) -> None:
        self._app = app
        self._callers = callers
        self._origin = _parse_origin(public_url)
        self._hosts = _LOOPBACK | frozenset(() if self._origin is None else {self._origin[1]})
        self._rates = rates
        self._most_open = concurrent_requests
        self._open = Counter[str | None]()  # requests under way, by caller
        self._metadata = [] if metadata_url is None else [f'resource_metadata="{metadata_url}"']

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                named = {name.lower() for name, _ in headers}
                message = {**message, "headers": headers + [one for one in _SECURITY_HEADERS if one[0] not in named]}
            await send(message)

        refused = await self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, send_with_headers)
            return
        caller: Caller | None = scope.get(CALLER)
        opened = None if caller is None else caller.id
        self._open[opened] += 1
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            self._open[opened] -= 1
            if not self._open[opened]:
                del self._open[opened]

    async def admits(self, scope: Scope) -> bool:
        """Return whether a request is for this host and from a caller who may send it, without counting it."""
        try:
            _check_scopes(await self._identify(scope, self._read_headers(scope)), scope["path"])
        except (Problem, ToolError):
            return False
        return True

    async def _refusal(self, scope: Scope) -> ProblemResponse | None:
        """Put the caller into the scope; return the response to a request that goes no further."""
        try:
            headers = self._read_headers(scope)
            path: str = scope["path"]
            if path in _OPEN or path.startswith(_OPEN_BELOW):
                return None
            caller = await self._identify(scope, headers)
            self._check(caller, path)
        except Problem as problem:
            return problem.response()
        except ToolError as error:
            return problem_of(error)
        scope[CALLER] = caller
        scope[AUTHENTICATED] = True
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
        return None

    def _read_headers(self, scope: Scope) -> dict[bytes, bytes]:
        """Return the headers of a request for this host that no foreign page made."""
        found: list[tuple[bytes, bytes]] = list(scope["headers"])
        if len(found) > _HEADERS or sum(len(name) + len(value) for name, value in found) > _HEADER_BYTES:
            raise Problem(431, "headers_too_large", "the headers of the request are too many or too long")
        headers = dict(found)
        if len(headers) < len(found) and any(sum(name == one for name, _ in found) > 1 for one in _SINGLE):
            raise Problem(400, "repeated_header", "Host, Origin and Authorization may be sent once")
        host, port = _parse_host(headers.get(b"host", b""))
        if host not in self._hosts:
            raise Problem(421, "unknown_host", "this host name is not served here; set server.public_url")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_own(origin, host, port):
            raise Problem(403, "foreign_origin", "pages of other sites may not send requests here")
        return headers

    def _is_own(self, origin: bytes, host: str, port: int | None) -> bool:
        """Return whether an origin is that of `public_url`, or this machine at the port that the request is for."""
        scheme, _, authority = origin.partition(b"://")
        named, at = _parse_host(authority)
        sent_by = (scheme, named, _port(scheme, at))
        if sent_by == self._origin:
            return True
        is_local = host in _LOOPBACK and named in _LOOPBACK
        return is_local and sent_by[0] == b"http" and sent_by[2] == _port(b"http", port)

    async def _identify(self, scope: Scope, headers: dict[bytes, bytes]) -> Caller:
        kind, _, bearer = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if kind.lower() != "bearer" or not bearer.strip():
            raise self._unauthorized("send `Authorization: Bearer TOKEN`")
        client: Any = scope.get("client")
        try:
            return await self._callers.identify(bearer.strip(), is_local=client is not None and is_loopback(client[0]))
        except ToolAuthError as error:
            if error.error_code != "invalid_token":
                raise Problem(503, error.error_code, error.message, headers={"Retry-After": "5"}) from None
            raise self._unauthorized(error.message, 'error="invalid_token"') from None

    def _unauthorized(self, detail: str, *parts: str) -> Problem:
        challenge = " ".join(["Bearer", ", ".join([*parts, *self._metadata])]).strip()
        return Problem(401, "invalid_token", detail, headers={"WWW-Authenticate": challenge})

    def _check(self, caller: Caller, path: str) -> None:
        """Refuse a caller that asks too much, or for what its scopes do not cover; the operator may do everything."""
        if caller.id == OPERATOR_ID:
            return
        wait_s = self._rates.take(caller.id)
        if wait_s:
            after = {"Retry-After": str(max(1, round(wait_s)))}
            raise Problem(429, "too_many_requests", "this caller sends too many requests", headers=after)
        if self._open[caller.id] >= self._most_open:
            detail = f"this caller has {self._most_open} requests open; event streams count, too"
            raise Problem(429, "too_many_requests", detail, headers={"Retry-After": "5"})
        _check_scopes(caller, path)


def _check_scopes(caller: Caller, path: str) -> None:
    if not caller.scopes:  # a token whose roles mean nothing here
        raise insufficient_scope(*SCOPES)
    if (path == "/mcp" or path.startswith("/mcp/")) and "call" not in caller.scopes:
        raise insufficient_scope("call")


def insufficient_scope(*scopes: str) -> Problem:
    """Return the problem of a caller that has none of these scopes; the challenge names the least of them."""
    challenge = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scopes[0]}"'}
    needed = " or ".join(map(repr, scopes))
    return Problem(403, "insufficient_scope", f"this takes a caller with the scope {needed}", headers=challenge)


def _parse_host(header: bytes) -> tuple[str, int | None]:
    """Return the host and the port of a Host header; an empty host where it has anything else (RFC 9110, 7.2)."""
    match = _HOST.fullmatch(header)
    if match is None:
        return "", None
    name = (match[1] or match[2]).decode("ascii").lower()
    return name, int(match[3]) if match[3] else None


def _port(scheme: bytes, port: int | None) -> int:
    return port or (443 if scheme == b"https" else 80)


def _parse_origin(url: str) -> tuple[bytes, str, int] | None:
    parts = urlsplit(url)
    scheme = parts.scheme.encode()
    return None if parts.hostname is None else (scheme, parts.hostname, _port(scheme, parts.port))
