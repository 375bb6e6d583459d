"""HTTP/1.1 and HTTP/2 by httpx2: for servers that want the latter, and for the clients that the MCP SDK insists on."""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast

import httpcore2
import httpx2

from toolpost.contracts.errors import (
    ErrorCategory,
    ToolConnectionError,
    ToolPermissionError,
    ToolValidationError,
)
from toolpost.wire.addresses import plain
from toolpost.wire.guard import REFUSED, parse_target
from toolpost.wire.headers import Headers
from toolpost.wire.proxies import END_OF_HEAD, LONGEST_HEAD, ProxyError, check_tunnel, proxy_at
from toolpost.wire.tls import http2_ssl_context, ssl_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence

    from toolpost.wire.addresses import Address
    from toolpost.wire.network import NetworkPolicy
    from toolpost.wire.proxies import Proxy
    from toolpost.wire.transports import Outgoing

    Finder = Callable[[str, int], Awaitable[Sequence[Address]]]

_KEEP_ALIVE_S = 15.0
_MOST_POOLS = 64
_BODILESS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "CONNECT"})


class Httpx2Transport:
    """One pool of connections for each address, and in it one for each name that TLS verified."""

    def __init__(self, *, http2: bool = False, max_connections: int = 100, proxy: Proxy | None = None) -> None:
        self._http2 = http2
        self._proxy = proxy
        self._max_connections = max_connections
        self._pools: dict[Address, httpcore2.AsyncConnectionPool] = {}
        self._closed = False

    async def send(self, outgoing: Outgoing) -> _HttpxIncoming:
        route = outgoing.route
        if self._closed:
            raise ToolConnectionError(f"{outgoing.subject}: the transport is closed", sent=False)
        request = httpcore2.Request(
            outgoing.method,
            httpcore2.URL(
                scheme=route.scheme.encode(), host=route.name.encode(), port=route.port, target=outgoing.path.encode()
            ),
            headers=_fields(outgoing),
            content=outgoing.body,
            extensions={"timeout": {"connect": outgoing.connect_s}},
        )
        with _told(outgoing):
            pool = await self._pool(route.address)
            response = await pool.handle_async_request(request)
        return _HttpxIncoming(response, outgoing)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        while self._pools:
            await self._pools.popitem()[1].aclose()

    async def _pool(self, address: Address) -> httpcore2.AsyncConnectionPool:
        if address not in self._pools:
            await self._drop_idle()

        async def find(_host: str, _port: int) -> Sequence[Address]:
            return (address,)

        if (pool := self._pools.get(address)) is None:
            pool = self._pools[address] = httpcore2.AsyncConnectionPool(
                ssl_context=http2_ssl_context() if self._http2 else ssl_context(),
                max_connections=self._max_connections,
                keepalive_expiry=_KEEP_ALIVE_S,
                http2=self._http2,
                network_backend=_Dialer(find, self._proxy),
            )
        return pool

    async def _drop_idle(self) -> None:
        """Make room for one more pool, where there is one that nobody uses."""
        idle = [address for address, pool in self._pools.items() if all(c.is_idle() for c in pool.connections)]
        for address in idle[: max(0, len(self._pools) + 1 - _MOST_POOLS)]:
            await self._pools.pop(address).aclose()


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """httpx2's own transport, with connections that are made only where a policy allows."""

    def __init__(self, policy: NetworkPolicy, *, limits: httpx2.Limits) -> None:
        super().__init__(verify=ssl_context(), trust_env=False, limits=limits)

        async def find(host: str, port: int) -> Sequence[Address]:
            written = f"[{host}]" if ":" in host else host
            return await policy.resolve(parse_target(f"http://{written}:{port}/"))

        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context(),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Dialer(find, None if policy.proxy is None else proxy_at(policy.proxy)),
        )


class _Dialer(httpcore2.AsyncNetworkBackend):
    """Connects to the addresses that it is told to use for a host, and verifies who answered."""

    def __init__(self, find: Finder, proxy: Proxy | None = None) -> None:
        self._find = find
        self._proxy = proxy
        self._inner: httpcore2.AsyncNetworkBackend = cast("Any", httpcore2.AnyIOBackend)()  # two classes of one name

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore2's word for it
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = await self._addresses(host, port)
        for address in others:
            try:
                return await self._connect(address, port, timeout)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._connect(last, port, timeout)

    async def _addresses(self, host: str, port: int) -> Sequence[Address]:
        try:
            return await self._find(host, port)
        except ToolConnectionError as failed:
            raise httpcore2.ConnectError(str(failed)) from failed

    async def _connect(self, address: Address, port: int, timeout_s: float | None) -> httpcore2.AsyncNetworkStream:
        if self._proxy is not None:
            return await self._tunnel(self._proxy, address, port, timeout_s)
        stream = await self._inner.connect_tcp(str(address), port, timeout_s)
        peer = stream.get_extra_info("server_addr")
        if peer is None or plain(ip_address(peer[0])) != address:
            await stream.aclose()
            message = f"the peer {peer and peer[0]} is not {address}, the address that was judged"
            raise ToolPermissionError(message, code=REFUSED)
        return stream

    async def _tunnel(
        self, proxy: Proxy, address: Address, port: int, timeout_s: float | None
    ) -> httpcore2.AsyncNetworkStream:
        stream = await self._inner.connect_tcp(proxy.host, proxy.port, timeout_s)
        try:
            await stream.write(proxy.request(address, port), timeout_s)
            head = b""
            while END_OF_HEAD not in head and len(head) < LONGEST_HEAD and (piece := await stream.read(1, timeout_s)):
                head += piece
            check_tunnel(head)
        except ProxyError as failed:
            await stream.aclose()
            raise httpcore2.ConnectError(str(failed)) from failed
        except BaseException:
            await stream.aclose()
            raise
        return stream


class _HttpxIncoming:
    """An answer of httpcore2's."""

    def __init__(self, response: httpcore2.Response, outgoing: Outgoing) -> None:
        self.status = response.status
        self.headers = Headers(tuple((name.decode("latin-1"), _text(value)) for name, value in response.headers))
        self._response = response
        self._outgoing = outgoing
        self._chunks: Any = aiter(response.stream)  # type: ignore[arg-type] # the async half of its two faces

    def take(self) -> bytes | None:
        return None

    async def chunk(self) -> bytes:
        with _told(self._outgoing):
            chunk = await anext(self._chunks, b"")
        if not chunk:
            await self.close()
        return chunk

    async def close(self) -> None:
        await self._response.aclose()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _fields(outgoing: Outgoing) -> list[tuple[bytes, bytes]]:
    pairs = [("Host", outgoing.route.host), *outgoing.headers]
    body = outgoing.body
    if isinstance(body, bytes) or (body is None and outgoing.method not in _BODILESS):
        pairs.append(("Content-Length", str(len(body or b""))))
    elif body is not None:
        pairs.append(("Transfer-Encoding", "chunked"))
    return [(name.encode("ascii"), value.encode()) for name, value in pairs]


@contextmanager
def _told(outgoing: Outgoing) -> Generator[None]:
    """Failures of httpcore2 as errors of the tree."""
    subject, address = outgoing.subject, outgoing.route.address
    try:
        yield
    except httpcore2.ConnectTimeout:
        message = f"{subject}: no connection to {address} within {outgoing.connect_s:g} s"
        raise ToolConnectionError(message, sent=False) from None
    except httpcore2.ConnectError as failed:
        distrusted = any(isinstance(reason, ssl.SSLCertVerificationError) for reason in failed.args)
        category = ErrorCategory.NON_RETRYABLE_CLIENT if distrusted else None
        message = f"{subject}: no connection to {address} ({failed})"
        raise ToolConnectionError(message, sent=False, category=category) from None
    except httpcore2.LocalProtocolError as wrong:
        raise ToolValidationError(f"{subject}: the request cannot be sent ({wrong})") from None
    except (httpcore2.NetworkError, httpcore2.RemoteProtocolError, OSError) as broken:
        reason = str(broken) or type(broken).__name__
        raise ToolConnectionError(f"{subject}: the connection broke ({reason})", sent=True) from None
