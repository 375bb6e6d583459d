"""The connecting half of guarded WebSockets, by aiohttp: one session for one connection to one judged address."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from aiohttp import (
    BaseConnector,
    ClientError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    WebSocketError,
    WSMsgType,
    WSServerHandshakeError,
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
from toolpost.wire.outbox import Outbox
from toolpost.wire.tls import ssl_context

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientResponse, ClientWebSocketResponse, WSMessage
    from aiohttp.client_middlewares import ClientHandlerType
    from aiohttp.tracing import Trace

    from toolpost.wire.openings import Opening

_DEFLATE = 15  # the window, in bits, that is offered to the server for what it sends
_LONGEST_FIELD = 64 * 1024
_GOODBYE_S = 1.0
_REASON_BYTES = 2048
_REASON = 300
_TEXT, _BINARY, _CLOSE = WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CLOSE
_TOO_BIG = 1009
_WELL = frozenset({0, 1000})  # RFC 6455 §7.4.1: a normal closure, and a close frame without a code
_UNPRINTABLE = re.compile(r"[^ -~\u00a1-\ud7ff]+")
_NO_LIMIT = ClientTimeout(total=None)  # whoever connects has a limit for all of it


async def open_websocket(opening: Opening) -> AiohttpWebSocket:
    """Connect and shake hands; the URL that aiohttp sees holds the address, so that it has nothing to look up."""
    route = opening.route
    connector = _Connector(opening)
    session = ClientSession(
        connector=connector,
        auto_decompress=False,
        cookie_jar=DummyCookieJar(),
        max_field_size=_LONGEST_FIELD,
        max_line_size=_LONGEST_FIELD,
        middlewares=(_Handshake(opening),),
        timeout=_NO_LIMIT,
        trust_env=False,
    )
    try:
        socket = await session.ws_connect(
            URL(route.base + opening.path, encoded=True),
            headers=(("Host", route.host), *opening.headers),
            protocols=opening.subprotocols,
            heartbeat=opening.ping_s,
            compress=_DEFLATE,
            max_msg_size=opening.max_message_bytes + 1,  # aiohttp refuses a message as long as its limit
        )
    except BaseException as failed:
        await session.close()
        if isinstance(failed, (ClientError, OSError)):
            raise _no_handshake(failed, opening) from None
        raise
    # Only what the server sends is worth compressing: our messages are short. There is no public word for it.
    socket._writer.compress = 0  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return AiohttpWebSocket(socket, session, connector, opening)


class AiohttpWebSocket:
    """A connection of aiohttp's, whose messages are framed here."""

    __slots__ = ("_ended", "_leaving", "_opening", "_outbox", "_room", "_session", "_socket", "_transport", "_turn")

    def __init__(
        self, socket: ClientWebSocketResponse, session: ClientSession, connector: _Connector, opening: Opening
    ) -> None:
        self._socket = socket
        self._session = session
        self._transport = transport = connector.transport
        self._outbox = Outbox(transport)
        self._room = connector.room
        self._turn = asyncio.Lock()
        self._opening = opening
        self._leaving = False
        self._ended: WSMessage | None = None

    @property
    def subprotocol(self) -> str | None:
        """The one that the server chose."""
        return self._socket.protocol

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._leaving or self._ended is not None or self._transport.is_closing()

    @property
    def ended_well(self) -> bool:
        """Whether the server has said that all is over and as it should be."""
        return self._ended is not None and self._ended.type is _CLOSE and self._ended.data in _WELL

    def post(self, message: str) -> bool:
        """Send a short text without waiting; False when it has to be waited for."""
        self._must_be_open()
        return not self._turn.locked() and self._outbox.put(_TEXT, message.encode())

    async def send(self, message: str | bytes) -> None:
        """Send a message; a long one waits until the server has taken enough of what was sent before it.

        All waiting is done before anything is written, each sender by itself: aiohttp would write first and
        then let all wait for one future, which the first to give up cancels for the others.
        """
        self._must_be_open()
        opcode, data = (_TEXT, message.encode()) if isinstance(message, str) else (_BINARY, message)
        if not self._turn.locked() and self._outbox.put(opcode, data):
            return
        async with self._turn:
            await asyncio.sleep(0)  # whoever sends without end lets others in
            await self._room.wait()
            self._must_be_open()
            self._outbox.write(opcode, data)

    def _must_be_open(self) -> None:
        if self.closed:
            raise ToolConnectionError(f"{self._opening.subject}: the connection is closed", sent=False)

    async def receive(self) -> str | bytes:
        """The next message."""
        if self._ended is not None:
            raise self._failure(self._ended)
        message = await self._socket.receive()
        if message.type is _TEXT or message.type is _BINARY:
            data: str | bytes = message.data
            return data
        self._ended = message
        raise self._failure(message)

    async def close(self) -> None:
        """Say goodbye; a server that goes on talking is not listened to for long."""
        self._leaving = True
        self._outbox.flush()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_S):
                    await self._socket.close()
        finally:
            await self._session.close()

    def _failure(self, ended: WSMessage) -> ToolError:
        match ended.data:
            case WebSocketError(code=code) if code == _TOO_BIG:
                limit = f"larger than {self._opening.max_message_bytes:,} bytes"
                message = f"{self._opening.subject}: a message is {limit}; ask for less or raise max_message_bytes"
                return ToolClientError(message, code="response_too_large")
            case WebSocketError() as wrong:
                return self._broken(f"what came is no WebSocket message: {wrong}")
            case BaseException() as wrong:
                return self._broken(str(wrong) or type(wrong).__name__)
            case int() as code if ended.type is _CLOSE:
                return self._broken(_farewell(code, ended.extra))
            case _:
                return self._broken("it ended without a goodbye")

    def _broken(self, reason: str) -> ToolConnectionError:
        return ToolConnectionError(f"{self._opening.subject}: the connection is closed ({reason})", sent=True)


class _Connector(BaseConnector):
    """Connects to one address, once, and verifies before anything is sent that the peer is it."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(limit=1, force_close=True)
        self._opening = opening
        self._transport: asyncio.Transport | None = None
        self.room = asyncio.Event()

    @property
    def transport(self) -> asyncio.Transport:
        """What the one connection writes to."""
        if self._transport is None:
            raise ToolConnectionError(f"{self._opening.subject}: there is no connection", sent=False)
        return self._transport

    async def _create_connection(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - aiohttp's word for it
    ) -> ResponseHandler:
        address = self._opening.route.address
        if self._transport is not None or req.url.raw_host != str(address):
            raise ToolPermissionError("a handshake leads nowhere else", code=REFUSED)
        try:
            transport, protocol = await self._loop.create_connection(self._protocol, **await self._way())
        except OSError as failed:  # also what TLS raises
            raise _no_connection(failed, self._opening) from None
        peer = transport.get_extra_info("peername")
        if self._opening.proxy is None and (peer is None or plain(ip_address(peer[0])) != address):
            transport.abort()
            message = f"the peer {peer and peer[0]} is not {address}, the address that was judged"
            raise ToolPermissionError(message, code=REFUSED)
        self._transport = transport
        return protocol

    def _protocol(self) -> ResponseHandler:
        return _Protocol(self._loop, self.room)

    async def _way(self) -> dict[str, Any]:
        """The judged address itself, or a tunnel to it; and who TLS has to find there."""
        route, proxy = self._opening.route, self._opening.proxy
        secure = {"ssl": ssl_context(), "server_hostname": route.name} if route.scheme == "wss" else {}
        if proxy is None:
            return {"host": str(route.address), "port": route.port, **secure}
        return {"sock": await proxy.dial(route.address, route.port), **secure}


class _Protocol(ResponseHandler):
    """aiohttp's own, which also tells when there is room for more to be sent, or nothing more to wait for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, room: asyncio.Event) -> None:
        super().__init__(loop)
        self._room = room
        room.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._room.clear()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._room.set()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._room.set()


class _Handshake:
    """Takes any answer but a change of protocols as a failure, before aiohttp would follow a redirect."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        response = await handler(request)
        if response.status == HTTPStatus.SWITCHING_PROTOCOLS:
            self._refuse_uninvited(response)
            return response
        try:
            raise await _refusal(response, self._opening)
        finally:
            response.close()

    def _refuse_uninvited(self, response: ClientResponse) -> None:
        """RFC 6455 §4.1: a subprotocol that was not offered ends the connection."""
        chosen = response.headers.get("Sec-WebSocket-Protocol")
        if chosen is not None and chosen.strip() not in self._opening.subprotocols:
            response.close()
            message = f"{self._opening.subject}: the server chose a subprotocol that was not offered"
            raise ToolClientError(message, code="handshake_refused")


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
        async with asyncio.timeout(_GOODBYE_S):
            body = await response.content.read(_REASON_BYTES)
            return _line(body.decode(errors="replace"))
    return ""


def _farewell(code: int, reason: str | None) -> str:
    told = f"code {code}" if code else "no code"
    return f"{told}: {_line(reason)}" if reason else told


def _line(text: str) -> str:
    return " ".join(_UNPRINTABLE.sub(" ", text).split())[:_REASON]


def _no_connection(failed: OSError, opening: Opening) -> ToolConnectionError:
    subject, address = opening.subject, opening.route.address
    if isinstance(failed, ssl.SSLCertVerificationError):
        message = f"{subject}: the server's certificate is refused ({failed.verify_message or failed})"
        return ToolConnectionError(message, sent=False, category=ErrorCategory.NON_RETRYABLE_CLIENT)
    if isinstance(failed, ssl.SSLError):
        return ToolConnectionError(f"{subject}: TLS failed ({failed.reason or failed})", sent=False)
    reason = os.strerror(failed.errno) if failed.errno else str(failed) or type(failed).__name__
    return ToolConnectionError(f"{subject}: no connection to {address} ({reason})", sent=False)


def _no_handshake(failed: Exception, opening: Opening) -> ToolError:
    if isinstance(failed, WSServerHandshakeError):
        message = f"{opening.subject} does not speak WebSocket: {failed.message[:_REASON].lower()}"
        return ToolClientError(message, code="handshake_refused")
    reason = str(failed)[:_REASON] or type(failed).__name__
    return ToolConnectionError(f"{opening.subject}: the WebSocket handshake failed ({reason})", sent=False)
