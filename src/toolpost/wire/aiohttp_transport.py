"""HTTP/1.1 by aiohttp: the cheapest transport, and the default."""

from __future__ import annotations

import io
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.client_exceptions import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientResponseError,
    ConnectionTimeoutError,
)
from yarl import URL

from toolpost.contracts.errors import ErrorCategory, ToolConnectionError, ToolError, ToolPermissionError
from toolpost.wire.addresses import plain
from toolpost.wire.guard import REFUSED
from toolpost.wire.headers import Headers
from toolpost.wire.tls import ssl_context

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from aiohttp.client import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

    from toolpost.wire.requests import Content
    from toolpost.wire.transports import Outgoing

_NO_GUESS = ("Content-Type",)  # what aiohttp would add by itself
_LONGEST_FIELD = 64 * 1024  # aiohttp's own 8 KiB are less than what policies and links in headers take
_LARGE = 2**20  # above it aiohttp warns of bytes that are sent in one go


class AiohttpTransport:
    """Connections of aiohttp's, pooled by address and by the name that TLS verified."""

    def __init__(self, *, max_connections: int = 100, keep_alive_s: float = 15.0) -> None:
        self._max_connections = max_connections
        self._keep_alive_s = keep_alive_s
        self._session: ClientSession | None = None
        self._closed = False

    async def send(self, outgoing: Outgoing) -> _AiohttpIncoming:
        """Send one request; the URL that aiohttp sees holds the address, so that it has nothing to look up."""
        session = self._session or self._open(outgoing)
        route = outgoing.route
        try:
            response = await session.request(
                outgoing.method,
                URL(route.base + outgoing.path, encoded=True),
                headers=(("Host", route.host), *outgoing.headers),
                data=_payload(outgoing.body),
                skip_auto_headers=None if outgoing.method == "GET" else _NO_GUESS,
                allow_redirects=False,
                server_hostname=route.name if route.scheme == "https" else None,
                timeout=_timeout(outgoing.connect_s),
            )
        except (ClientError, OSError) as failed:
            raise _failure(failed, outgoing) from None
        return _AiohttpIncoming(response, outgoing)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self, outgoing: Outgoing) -> ClientSession:
        if self._closed:
            raise ToolConnectionError(f"{outgoing.subject}: the transport is closed", sent=False)
        connector = _Connector(
            limit=self._max_connections, keepalive_timeout=self._keep_alive_s, ssl=ssl_context(), use_dns_cache=False
        )
        self._session = ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=DummyCookieJar(),
            max_field_size=_LONGEST_FIELD,
            max_line_size=_LONGEST_FIELD,
            timeout=ClientTimeout(total=None),
            trust_env=False,
        )
        # aiohttp would send an idempotent request again by itself; there is no public word against it.
        self._session._retry_connection = False  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        return self._session


class _AiohttpIncoming:
    """An answer of aiohttp's."""

    __slots__ = ("_outgoing", "_response", "headers", "status")

    def __init__(self, response: ClientResponse, outgoing: Outgoing) -> None:
        self.status = response.status
        self.headers = Headers(tuple(response.headers.items()))
        self._response = response
        self._outgoing = outgoing

    def take(self) -> bytes | None:
        content = self._response.content
        return content.read_nowait() if content.is_eof() and content.exception() is None else None

    async def chunk(self) -> bytes:
        try:
            return await self._response.content.readany()
        except (ClientError, OSError) as broken:
            raise _failure(broken, self._outgoing) from None

    async def close(self) -> None:
        if not self._response.closed:
            self._response.release()


class _Connector(TCPConnector):
    """Verifies, before anything is sent, that the peer is the address in the URL."""

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - aiohttp's word for it
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        peer = connection.transport.get_extra_info("peername") if connection.transport else None
        if peer is None or not _is(peer[0], req.url.raw_host):
            connection.close()
            message = f"the peer {peer and peer[0]} is not {req.url.raw_host}, the address that was judged"
            raise ToolPermissionError(message, code=REFUSED)
        return connection


def _is(peer: str, host: str | None) -> bool:
    return peer == host or plain(ip_address(peer)) == ip_address(host or "")


def _failure(failed: Exception, outgoing: Outgoing) -> ToolError:
    subject, address = outgoing.subject, outgoing.route.address
    match failed:
        case ConnectionTimeoutError():
            message = f"{subject}: no connection to {address} within {outgoing.connect_s:g} s"
            return ToolConnectionError(message, sent=False)
        case ClientConnectorCertificateError():
            message = f"{subject}: the server's certificate is refused ({failed.certificate_error})"
            return ToolConnectionError(message, sent=False, category=ErrorCategory.NON_RETRYABLE_CLIENT)
        case ClientConnectorError():
            reason = failed.os_error.strerror or failed.os_error
            return ToolConnectionError(f"{subject}: no connection to {address} ({reason})", sent=False)
        case ClientResponseError():
            return ToolConnectionError(f"{subject}: the answer is not HTTP ({failed.message})", sent=True)
        case _:
            reason = str(failed) or type(failed).__name__
            return ToolConnectionError(f"{subject}: the connection broke ({reason})", sent=True)


@lru_cache(maxsize=64)
def _timeout(connect_s: float) -> ClientTimeout:
    return ClientTimeout(total=None, sock_connect=connect_s)


def _payload(body: Content) -> Content | io.BytesIO:
    if isinstance(body, bytes) and len(body) > _LARGE:
        return io.BytesIO(body)
    return body
