"""Routes to allowed addresses: DNS look-ups, cached routes, and how a connection along a route is opened."""

from __future__ import annotations

import asyncio
import os
import ssl
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from toolpost.contracts.errors import ErrorCategory, ToolConnectionError, ToolPermissionError
from toolpost.wire.addresses import unmap_ipv4
from toolpost.wire.network import REFUSED
from toolpost.wire.proxies import ProxyError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolpost.wire.addresses import Address
    from toolpost.wire.network import NetworkPolicy, Resolver, Target
    from toolpost.wire.proxies import Proxy

NEXT_ADDRESS_S = 2.0  # an address that swallows packets must not use up the time of the others
_CONNECT_S = 10.0
_CONNECT_SHARE = 0.8
_MAX_CACHED = 1024
_FOREVER = float("inf")
_SECURE = frozenset({"https", "wss"})


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
        if (known := self.known(target)) is not None:
            return known
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


_Key: TypeAlias = tuple[str, str, int]


def _key(target: Target) -> _Key:
    return target.scheme, target.ascii_host, target.port
