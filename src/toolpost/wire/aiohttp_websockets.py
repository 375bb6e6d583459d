"""The connecting half of guarded WebSockets, by aiohttp: one session for one connection to one judged address."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import re
import ssl
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import (
    BaseConnector,
    ClientConnectionError,
    ClientError,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
)
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from toolpost.contracts.adapt import from_status
from toolpost.contracts.errors import (
    ErrorCategory,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolPermissionError,
)
from toolpost.wire.addresses import plain
from toolpost.wire.guard import REFUSED
from toolpost.wire.tls import ssl_context
from toolpost.wire.websocket_connection import GOODBYE_S, Connection, one_line

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientResponse
    from aiohttp.tracing import Trace
    from multidict import CIMultiDictProxy

    from toolpost.wire.openings import Opening

_LONGEST_FIELD = 64 * 1024
_REASON_BYTES = 2048
_NO_LIMIT = ClientTimeout(total=None)  # whoever connects has a limit for all of it
_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 §1.3
# Only what the server sends is worth compressing: our messages are short.
_UPGRADE = (
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits"),
)
_DEFLATE = re.compile(  # RFC 7692 §7.1: what may be answered to that
    r"permessage-deflate(\s*;\s*((server|client)_no_context_takeover"
    r"|(server|client)_max_window_bits(\s*=\s*(\"?)([89]|1[0-5])\6)?))*",
    re.IGNORECASE,
)


async def open_websocket(opening: Opening) -> Connection:
    """Connect and shake hands; the URL that aiohttp sees holds the address, so that it has nothing to look up."""
    connector = _Connector(opening)
    session = ClientSession(
        connector=connector,
        auto_decompress=False,
        cookie_jar=DummyCookieJar(),
        max_field_size=_LONGEST_FIELD,
        max_line_size=_LONGEST_FIELD,
        timeout=_NO_LIMIT,
        trust_env=False,
    )
    try:
        return await _shaken(opening, session, connector)
    except BaseException as failed:
        await session.close()
        if isinstance(failed, (ClientError, OSError)):
            raise _no_handshake(failed, opening) from None
        raise


async def _shaken(opening: Opening, session: ClientSession, connector: _Connector) -> Connection:
    route, key = opening.route, base64.b64encode(os.urandom(16)).decode()
    fields = [("Host", route.host), *opening.headers, *_UPGRADE, ("Sec-WebSocket-Key", key)]
    if opening.subprotocols:
        fields.append(("Sec-WebSocket-Protocol", ",".join(opening.subprotocols)))
    url = URL(route.base + opening.path, encoded=True)
    response = await session.get(url, headers=fields, allow_redirects=False)
    try:
        subprotocol, deflated = await _agreed(response, key, opening)
    except BaseException:
        response.close()
        raise

    async def let_go() -> None:
        response.close()
        await session.close()

    protocol = connector.protocol
    connection = Connection(protocol.kept, opening, let_go, subprotocol=subprotocol, deflated=deflated)
    protocol.hand_over(connection)
    return connection


async def _agreed(response: ClientResponse, key: str, opening: Opening) -> tuple[str | None, bool]:
    """The subprotocol, and whether the server may compress; RFC 6455 §4.1 says what is no agreement."""
    if response.status != HTTPStatus.SWITCHING_PROTOCOLS:
        raise await _refusal(response, opening)
    fields = response.headers
    accepted = base64.b64encode(hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest()).decode()
    connection = {word.strip().lower() for word in _all(fields, "Connection").split(",")}
    if fields.get("Upgrade", "").strip().lower() != "websocket" or "upgrade" not in connection:
        raise _no_agreement(opening, "it did not upgrade the connection")
    if fields.get("Sec-WebSocket-Accept", "").strip() != accepted:
        raise _no_agreement(opening, "its answer to the key is wrong")
    extensions = _all(fields, "Sec-WebSocket-Extensions").strip()
    if extensions and not _DEFLATE.fullmatch(extensions):
        raise _no_agreement(opening, "it chose an extension that was not offered")
    chosen = fields.get("Sec-WebSocket-Protocol")
    if chosen is not None and chosen.strip() not in opening.subprotocols:
        raise _no_agreement(opening, "it chose a subprotocol that was not offered")
    return chosen and chosen.strip(), bool(extensions)


def _all(fields: CIMultiDictProxy[str], name: str) -> str:
    """What all fields of a name say: RFC 9110 §5.3 lets a list be told in many."""
    return ", ".join(fields.getall(name, ()))


class _Connector(BaseConnector):
    """Connects to one address, once, and verifies before anything is sent that the peer is it."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(limit=1, force_close=True)
        self._opening = opening
        self.protocol = _Protocol(self._loop)
        self._is_used = False

    async def _create_connection(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - aiohttp's word for it
    ) -> ResponseHandler:
        address = self._opening.route.address
        if req.url.raw_host != str(address):
            raise ToolPermissionError("a handshake leads nowhere else", code=REFUSED)
        if self._is_used:  # aiohttp would ask once more; whether to is not for it to say
            raise ClientConnectionError("the server closed the connection without an answer")
        self._is_used = True
        try:
            transport, protocol = await self._loop.create_connection(lambda: self.protocol, **await self._way())
        except OSError as failed:  # also what TLS raises
            raise _no_connection(failed, self._opening) from None
        peer = transport.get_extra_info("peername")
        if self._opening.proxy is None and (peer is None or plain(ip_address(peer[0])) != address):
            transport.abort()
            message = f"the peer {peer and peer[0]} is not {address}, the address that was judged"
            raise ToolPermissionError(message, code=REFUSED)
        return protocol

    async def _way(self) -> dict[str, Any]:
        """The judged address itself, or a tunnel to it; and who TLS has to find there."""
        route, proxy = self._opening.route, self._opening.proxy
        secure = {"ssl": ssl_context(), "server_hostname": route.name} if route.scheme == "wss" else {}
        if proxy is None:
            return {"host": str(route.address), "port": route.port, **secure}
        return {"sock": await proxy.dial(route.address, route.port), **secure}


class _Protocol(ResponseHandler):
    """aiohttp's own until hands are shaken; what comes behind is the connection's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._connection: Connection | None = None
        self._early = bytearray()
        self.kept: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.kept = cast("asyncio.Transport", transport)

    def hand_over(self, connection: Connection) -> None:
        """Let a connection have what came, and what will."""
        self._connection = connection
        connection.feed(bytes(self._early))
        if self.transport is None:
            connection.lost()

    def data_received(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.feed(data)
        elif self.upgraded:
            self._early += data
        else:
            super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._connection is not None:
            self._connection.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._connection is not None:
            self._connection.resume()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._connection is not None:
            self._connection.lost()


async def _refusal(response: ClientResponse, opening: Opening) -> ToolError:
    status = response.status
    head = f"{opening.subject} refused the WebSocket handshake with {status} {response.reason or ''}".rstrip()
    if 300 <= status < 400:
        return from_status(status, f"{head}; redirects are not followed: write the URL that it leads to")
    said = await _said(response)
    error = from_status(status, f"{head}: {said}" if said else head)
    asked = response.headers.get("Retry-After", "")
    error.retry_after_s = float(asked) if asked.isdecimal() and len(asked) < 10 else None
    return error


async def _said(response: ClientResponse) -> str:
    """The beginning of a plain text, on one line."""
    if response.content_type not in {"text/plain", "application/json", "application/problem+json"}:
        return ""
    with contextlib.suppress(ClientError, OSError):
        async with asyncio.timeout(GOODBYE_S):
            body = await response.content.read(_REASON_BYTES)
            return one_line(body.decode(errors="replace"))
    return ""


def _no_connection(failed: OSError, opening: Opening) -> ToolConnectionError:
    subject, address = opening.subject, opening.route.address
    if isinstance(failed, ssl.SSLCertVerificationError):
        message = f"{subject}: the server's certificate is refused ({failed.verify_message or failed})"
        return ToolConnectionError(message, sent=False, category=ErrorCategory.NON_RETRYABLE_CLIENT)
    if isinstance(failed, ssl.SSLError):
        return ToolConnectionError(f"{subject}: TLS failed ({failed.reason or failed})", sent=False)
    reason = os.strerror(failed.errno) if failed.errno else str(failed) or type(failed).__name__
    return ToolConnectionError(f"{subject}: no connection to {address} ({reason})", sent=False)


def _no_agreement(opening: Opening, reason: str) -> ToolClientError:
    return ToolClientError(f"{opening.subject} does not speak WebSocket: {reason}", code="handshake_refused")


def _no_handshake(failed: Exception, opening: Opening) -> ToolConnectionError:
    # What aiohttp says of an answer tells all of the URL, whose path or query may hold a key.
    told = failed.message if isinstance(failed, ClientResponseError) else str(failed)
    reason = one_line(told) or type(failed).__name__
    return ToolConnectionError(f"{opening.subject}: the WebSocket handshake failed ({reason})", sent=False)
