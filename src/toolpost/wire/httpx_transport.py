"""Guarded transport for httpx2, the HTTP client that the MCP SDK insists on.

Requests travel over our own connections: on httpx2's a call costs twice the CPU.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx2

from toolpost.contracts.errors import ToolConnectionError
from toolpost.wire.client import HttpClient, default_transport
from toolpost.wire.messages import MANAGED_HEADERS, Request
from toolpost.wire.network import parse_target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from toolpost.wire.http1 import Exchange
    from toolpost.wire.network import NetworkPolicy

_CONNECT_S = 30.0


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Transport of httpx2 whose connections are opened only to addresses that the policy allows.

    The time limits of httpx2 for connecting and reading hold. Redirects are httpx2's to follow.
    """

    def __init__(self, policy: NetworkPolicy) -> None:
        self._connections = default_transport(policy.proxy, max_connections=200, keep_alive_s=30.0)
        self._client = HttpClient(policy, transport=self._connections)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and wait for the head of its response."""
        limits: dict[str, Any] = request.extensions.get("timeout") or {}
        sent = Request(request.method, str(request.url), _pairs(request), await request.aread() or None)
        try:
            async with asyncio.timeout(limits.get("read")):
                exchange = await self._client.exchange(
                    sent, parse_target(sent.url), limits.get("connect") or _CONNECT_S
                )
        except TimeoutError as error:
            raise httpx2.ReadTimeout(f"{sent.subject}: no answer in time", request=request) from error
        except ToolConnectionError as error:
            raise _converted(error, request) from error
        headers = [(_encoded(name), _encoded(value)) for name, value in exchange.headers]
        body = exchange.take()
        stream = _Body(exchange, request, limits.get("read")) if body is None else httpx2.ByteStream(body)
        return httpx2.Response(exchange.status, headers=headers, stream=stream)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.close()
        await self._connections.close()


class _Body(httpx2.AsyncByteStream):
    """The body of a response as it arrives."""

    def __init__(self, exchange: Exchange, request: httpx2.Request, read_s: float | None) -> None:
        self._exchange = exchange
        self._request = request
        self._read_s = read_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while piece := await self._next():
                yield piece
        except TimeoutError as error:
            raise httpx2.ReadTimeout("the rest of the answer did not come in time", request=self._request) from error
        except ToolConnectionError as error:
            raise _converted(error, self._request) from error

    async def _next(self) -> bytes:
        async with asyncio.timeout(self._read_s):
            return await self._exchange.chunk()

    async def aclose(self) -> None:
        await self._exchange.close()


def _pairs(request: httpx2.Request) -> tuple[tuple[str, str], ...]:
    """Return the header fields but those of the connection, which it writes itself."""
    return tuple((name, value) for name, value in request.headers.multi_items() if name not in MANAGED_HEADERS)


def _converted(error: ToolConnectionError, request: httpx2.Request) -> httpx2.TransportError:
    """Return an error as httpx2 has it: whether anything was sent decides about the class."""
    kind = httpx2.ReadError if error.sent else httpx2.ConnectError
    return kind(error.message, request=request)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
