"""The guarded HTTP client: the guard checks every request and every redirect before it is connected."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from toolpost.contracts.errors import (
    ConfigError,
    ToolClientError,
    ToolConnectionError,
    ToolPermissionError,
    ToolTimeoutError,
)
from toolpost.wire.decompression import ACCEPTED_ENCODINGS
from toolpost.wire.messages import Deadlines, Request, Response, ResponseBody, check_method, clean_headers
from toolpost.wire.proxies import parse_proxy
from toolpost.wire.redirects import REDIRECTS, redirect_request
from toolpost.wire.routes import NEXT_ADDRESS_S, Route
from toolpost.wire.targets import Target, parse_target
from toolpost.wire.tracing import TRACEPARENT, traceparent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolpost.wire.http1 import Exchange, Http1Transport
    from toolpost.wire.network import NetworkPolicy, Resolver

PAGE_TIMEOUT_S = 10.0
PAGE_BYTES = 5 * 1024 * 1024
MAX_REDIRECTS = 3
_ROUTES_S = 30.0
_DEFAULT_HEADERS = (("Accept", "*/*"), ("Accept-Encoding", ACCEPTED_ENCODINGS), ("User-Agent", "toolpost"))
_CONNECT_S = 10.0
_CONNECT_SHARE = 0.8
_MAX_CACHED = 1024
_FOREVER = float("inf")
_Key: TypeAlias = tuple[str, str, int]


class HttpClient:
    """Send requests of one source over pooled connections.

    A request is never resent: an error states whether the request may have been sent, and the caller decides.
    The default limits are for web pages.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        *,
        transport: Http1Transport | None = None,
        timeout_s: float = PAGE_TIMEOUT_S,
        max_bytes: int = PAGE_BYTES,
        max_redirects: int = MAX_REDIRECTS,
        resolver: Resolver | None = None,
    ) -> None:
        self.policy = policy
        self.timeout_s = timeout_s
        self.max_bytes = max_bytes
        self.max_redirects = max_redirects
        self._owns_transport = transport is None
        self._transport = transport or default_transport(policy.proxy)
        self._lookups = SharedLookups(resolver)
        self._routes = RouteCache(policy, self._lookups, keep_s=_ROUTES_S)
        self._deadlines = Deadlines()
        self._closed = False

    async def send(self, request: Request) -> Response:
        """Send a request and wait for the head of its response, with any status."""
        timeout_s = self.timeout_s if request.timeout_s is None else request.timeout_s
        request = self._normalize(request)
        target = parse_target(request.url)
        connect_s = connect_timeout(timeout_s)
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            with self._deadlines.until(deadline):
                exchange = await self.exchange(request, target, connect_s)
                if exchange.status in REDIRECTS:
                    request, exchange = await self._follow(request, exchange, connect_s)
        except TimeoutError:
            message = f"{request.subject}: no answer within {timeout_s:g} s"
            raise ToolTimeoutError(message, timeout_ms=timeout_s * 1000) from None
        limit = self.max_bytes if request.max_bytes is None else request.max_bytes
        reader = ResponseBody(exchange, request, limit=limit, deadline=deadline, deadlines=self._deadlines)
        return Response(exchange.status, exchange.headers, url=request.url, reader=reader)

    def for_document(self, url: str) -> HttpClient:
        """Return a client over the same connections for URLs in a document from this URL."""
        return HttpClient(
            self.policy.for_document(url),
            transport=self._transport,
            timeout_s=self.timeout_s,
            max_bytes=self.max_bytes,
            max_redirects=self.max_redirects,
            resolver=self._lookups,
        )

    async def close(self) -> None:
        """Close every connection, unless the transport was passed in; later requests fail."""
        self._closed = True
        await self._lookups.close()
        if self._owns_transport:
            await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _normalize(self, request: Request) -> Request:
        """Return a request with a valid method and valid header fields, including the defaults."""
        pairs = clean_headers(request.headers, defaults=_DEFAULT_HEADERS)
        if self.policy.trace_context and (named := traceparent()) is not None:
            pairs = (*pairs, (TRACEPARENT, named))
        return Request(
            check_method(request.method),
            request.url,
            pairs,
            request.body,
            request.timeout_s,
            request.max_bytes,
            request.follow if self.max_redirects else "none",
        )

    async def _follow(self, request: Request, exchange: Exchange, connect_s: float) -> tuple[Request, Exchange]:
        try:
            for left in range(self.max_redirects, -1, -1):
                following = await self._redirect(request, exchange, connect_s, left=left)
                if following is None:
                    break
                request = following
                exchange = await self.exchange(request, parse_target(request.url), connect_s)
        except ToolConnectionError as failed:
            failed.sent = True  # this request, or the one before it
            raise
        return request, exchange

    async def _redirect(self, request: Request, exchange: Exchange, connect_s: float, *, left: int) -> Request | None:
        """Return the request of a redirect if the guard allows its target, and close the exchange."""
        try:
            following = redirect_request(request, exchange.status, exchange.headers)
            if following is None:
                return None
            await exchange.close()
            if not left:
                message = f"{request.subject}: redirected more than {self.max_redirects} times"
                raise ToolClientError(message, code="too_many_redirects")
            await self._routes.find(parse_target(following.url), timeout_s=connect_s)
        except ToolPermissionError as refused:
            await exchange.close()
            reason = str(refused).removeprefix("Permission denied: ")
            message = f"the redirect of {request.subject} is not followed: {reason}"
            raise ToolPermissionError(message, code=refused.error_code) from None
        return following

    async def exchange(self, request: Request, target: Target, connect_s: float) -> Exchange:
        """Send a request unchanged and wait for the head of its response, without the client's limits."""
        self._refuse_closed(request)
        routes = self._routes.known(target) or await self._routes.find(target, timeout_s=connect_s)
        return await self._send_along(routes, request, target, connect_s)

    def begin(self, request: Request, target: Target) -> Exchange | None:
        """Send a request unchanged if a connection is idle; None if the caller has to wait for one."""
        self._refuse_closed(request)
        routes = self._routes.known(target)
        return None if routes is None else self._transport.begin(request, routes[0])

    async def wait_for_head(self, exchange: Exchange, target: Target) -> None:
        """Wait for the head of the response to a request of `begin`."""
        try:
            await exchange.head()
        except ToolConnectionError:
            self._routes.forget(target)
            raise

    def _refuse_closed(self, request: Request) -> None:
        if self._closed:
            raise ToolConnectionError(f"{request.subject}: the client is closed", sent=False)

    async def _send_along(
        self, routes: tuple[Route, ...], request: Request, target: Target, connect_s: float
    ) -> Exchange:
        """Send a request along the first route whose address answers."""
        route, *others = routes
        try:
            first_s = min(NEXT_ADDRESS_S, connect_s) if others else connect_s
            return await self._transport.send(request, route, connect_s=first_s)
        except ToolConnectionError as failed:
            if failed.sent or not others:
                self._routes.forget(target)
                raise
        self._routes.demote(target, route)
        return await self._send_along(tuple(others), request, target, connect_s)


def default_transport(
    proxy: str | None = None, *, max_connections: int = 100, keep_alive_s: float = 15.0
) -> Http1Transport:
    """Create an HTTP/1.1 transport, through a proxy if one is given; raise ConfigError without httptools."""
    try:
        from toolpost.wire.http1 import Http1Transport  # noqa: PLC0415 - an extra
    except ImportError as missing:
        raise ConfigError("HTTP needs httptools; run: pip install 'toolpost[http]'") from missing
    along = None if proxy is None else parse_proxy(proxy)
    return Http1Transport(max_connections=max_connections, keep_alive_s=keep_alive_s, proxy=along)


class RouteCache:
    """Cache of the routes that one policy allows.

    Routes to a name are cached for `keep_s`, so DNS rebinding has no effect in that time; then they are resolved and
    checked again. Routes to a literal address are cached permanently.
    """

    def __init__(self, policy: NetworkPolicy, lookups: SharedLookups, *, keep_s: float) -> None:
        self._policy = policy
        self._lookups = lookups
        self._keep_s = keep_s
        self._cached: dict[_Key, _CachedRoutes] = {}

    def known(self, target: Target) -> tuple[Route, ...] | None:
        """Return the cached routes to a target, unless they have expired."""
        cached = self._cached.get(_key(target))
        if cached is None or cached.until < asyncio.get_running_loop().time():
            return None
        return cached.routes

    async def find(self, target: Target, *, timeout_s: float = 10.0) -> tuple[Route, ...]:
        """Return the routes to a target, resolved if not cached; the last address that answered is first."""
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
        """Evict the routes of a target that does not answer; the next request resolves it again."""
        self._cached.pop(_key(target), None)

    def _keep(self, target: Target, cached: _CachedRoutes) -> None:
        if len(self._cached) >= _MAX_CACHED:
            self._cached.pop(next(iter(self._cached)))
        self._cached[_key(target)] = cached


class _CachedRoutes(NamedTuple):
    routes: tuple[Route, ...]
    until: float


class SharedLookups:
    """Resolver that shares one look-up among all concurrent callers with the same name."""

    def __init__(self, resolver: Resolver | None = None) -> None:
        self._resolver = resolver
        self._running: dict[tuple[str, int], asyncio.Future[Iterable[tuple[Any, ...]]]] = {}

    async def __call__(self, host: str, port: int, /, *, type: int) -> Iterable[tuple[Any, ...]]:
        key = (host, port)
        if (running := self._running.get(key)) is None:
            look_up = self._resolver or asyncio.get_running_loop().getaddrinfo
            running = self._running[key] = asyncio.ensure_future(look_up(host, port, type=type))
            running.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(running)  # a cancelled caller does not cancel the look-up for others

    async def close(self) -> None:
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _forget(self, key: tuple[str, int], done: asyncio.Future[Iterable[tuple[Any, ...]]]) -> None:
        del self._running[key]
        if not done.cancelled():
            done.exception()  # marks it as retrieved; asyncio would log it otherwise


def _key(target: Target) -> _Key:
    return target.scheme, target.ascii_host, target.port


def connect_timeout(timeout_s: float) -> float:
    """Return the timeout for connecting: less than the whole, so a failed connect is reported as such."""
    return min(_CONNECT_S, _CONNECT_SHARE * timeout_s)
