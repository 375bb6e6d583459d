"""Guarded transport for httpx2, the HTTP client that the MCP SDK insists on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

import httpcore2
import httpx2

from toolpost.contracts.errors import ToolConnectionError, ToolPermissionError
from toolpost.wire.addresses import Address
from toolpost.wire.network import NetworkPolicy, check_peer, parse_target, ssl_context
from toolpost.wire.proxies import END_OF_HEAD, MAX_HEAD_BYTES, Proxy, ProxyError, check_tunnel, parse_proxy

Finder = Callable[[str, int], Awaitable[Sequence[Address]]]


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """httpx2's own transport whose connections are opened only to addresses that the policy allows."""

    def __init__(self, policy: NetworkPolicy) -> None:
        limits = httpx2.Limits(max_connections=200, max_keepalive_connections=100, keepalive_expiry=30.0)
        super().__init__(verify=ssl_context(), trust_env=False, limits=limits)

        async def find(host: str, port: int) -> Sequence[Address]:
            written = f"[{host}]" if ":" in host else host
            return await policy.resolve(parse_target(f"http://{written}:{port}/"))

        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context(),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Dialer(find, None if policy.proxy is None else parse_proxy(policy.proxy)),
        )


class _Dialer(httpcore2.AsyncNetworkBackend):
    """Network backend that connects to the addresses `find` returns for a host and checks the peer's address."""

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
        try:
            check_peer(stream.get_extra_info("server_addr"), address)
        except ToolPermissionError:
            await stream.aclose()
            raise
        return stream

    async def _tunnel(
        self, proxy: Proxy, address: Address, port: int, timeout_s: float | None
    ) -> httpcore2.AsyncNetworkStream:
        stream = await self._inner.connect_tcp(proxy.host, proxy.port, timeout_s)
        try:
            await stream.write(proxy.connect_request(address, port), timeout_s)
            head = b""
            while END_OF_HEAD not in head and len(head) < MAX_HEAD_BYTES and (piece := await stream.read(1, timeout_s)):
                head += piece
            check_tunnel(head)
        except ProxyError as failed:
            await stream.aclose()
            raise httpcore2.ConnectError(str(failed)) from failed
        except BaseException:
            await stream.aclose()
            raise
        return stream
