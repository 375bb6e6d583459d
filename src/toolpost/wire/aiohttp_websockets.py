"""WebSocket connections on aiohttp's client, each over a session of its own to one address that the guard allowed."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolError, ToolPermissionError, from_status
from toolpost.wire.messages import Headers, Pairs, parse_retry_after
from toolpost.wire.network import REFUSED, Proxy, Route, check_peer, connect_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.client_middlewares import ClientHandlerType
    from aiohttp.tracing import Trace


_CLOSE_S = 1.0  # for the server's close frame, and for what it has not taken yet
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # whoever connects has a timeout for all of it
_MAX_FIELD_BYTES = 64 * 1024
_BODY_BYTES = 2048  # of a refusal
_REASON_CHARS = 300
_WINDOW_BITS = 15

_HIGH_WATER = 128 * 1024  # bytes kept for a reader before no more are read from the socket
_LOW_WATER = _HIGH_WATER // 2
_MESSAGE_OVERHEAD = 128  # bytes that even an empty message takes
_MESSAGES_PER_TURN = 128  # so that a flood does not hold up the event loop
_LONG_MESSAGE = 16 * 1024
_PACKET_BYTES = 1400  # fill one on most networks, so that waiting for more saves nothing
_CONTROL_BIT = 0x08  # RFC 6455 §5.5

_PONG_SHARE = 0.5  # of the time between two pings
_SUSPENDED = 1.2  # a timer that is so much too late says that this process did not run, and nothing of the server

_TEXT, _BINARY, _PING, _PONG, _CLOSE = (
    aiohttp.WSMsgType.TEXT,
    aiohttp.WSMsgType.BINARY,
    aiohttp.WSMsgType.PING,
    aiohttp.WSMsgType.PONG,
    aiohttp.WSMsgType.CLOSE,
)
_NORMAL_CLOSURE = frozenset({0, 1000})  # RFC 6455 §7.4.1; 0 is a close frame without a code
_MAX_CLOSE_CODE = 4999  # RFC 6455 §7.4.2
_UNPRINTABLE = re.compile(r"[^ -~\u00a1-\ud7ff]+")
_DEFLATE = "permessage-deflate"
_DEFLATE_ACCEPTED = re.compile(  # RFC 7692 §7.1: what may be answered to our offer
    rf"{_DEFLATE}(\s*;\s*((server|client)_no_context_takeover"
    r"|(server|client)_max_window_bits(\s*=\s*(\"?)([89]|1[0-5])\6)?))*",
    re.IGNORECASE,
)


class _Request(NamedTuple):
    """The request of a handshake, and the route that it takes."""

    route: Route
    path: str
    headers: Pairs
    subprotocols: tuple[str, ...]
    max_message_bytes: int
    proxy: Proxy | None

    @property
    def subject(self) -> str:
        """Name the server in errors, without path and query: they may hold a key."""
        return f"{self.route.scheme}://{self.route.host}"


class _Ending(NamedTuple):
    """Why a connection is closed."""

    reason: str
    is_normal: bool = False
    is_too_big: bool = False


_LOST = _Ending("it ended without a goodbye")
_WRONG = "what came is no WebSocket message"


async def open_websocket(
    route: Route,
    path: str,
    *,
    headers: Pairs,
    subprotocols: tuple[str, ...],
    max_message_bytes: int,
    ping_s: float | None,
    proxy: Proxy | None,
) -> WebSocket:
    """Connect to one address that was judged and do the handshake; `path` is what the request line says."""
    request = _Request(route, path, headers, subprotocols, max_message_bytes, proxy)
    connector = _Connector(request)
    session = aiohttp.ClientSession(
        connector=connector,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        max_field_size=_MAX_FIELD_BYTES,
        max_line_size=_MAX_FIELD_BYTES,
        middlewares=(partial(_check_handshake, request),),
        response_class=_HandshakeResponse,
        timeout=_NO_TIMEOUT,
        trust_env=False,
        ws_response_class=_WebSocketResponse,
    )
    try:
        socket = await session.ws_connect(
            URL(route.base + path, encoded=True),  # of the address, so that aiohttp has nothing to look up
            headers=(("Host", route.host), *headers),
            protocols=subprotocols,
            autoclose=False,
            autoping=False,
            compress=_WINDOW_BITS,
            max_msg_size=max_message_bytes + 1,  # aiohttp refuses a message as long as its limit
        )
    except BaseException as failed:
        await session.close()
        if isinstance(failed, (aiohttp.ClientError, OSError)):
            raise _handshake_error(failed, request) from None
        raise
    websocket = WebSocket(socket, session, connector.protocol, request, ping_s=ping_s)
    try:
        await asyncio.sleep(0)  # a close frame that came with the answer to the handshake is known at once
    except BaseException:
        await websocket.close()
        raise
    return websocket


class WebSocket:
    """An open connection, for one reader and any number of senders.

    A task reads all the time, so that pings are answered and a close is known while nobody calls `receive`.
    """

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        session: aiohttp.ClientSession,
        protocol: _Protocol,
        request: _Request,
        *,
        ping_s: float | None,
    ) -> None:
        self._socket = socket
        self._session = session
        self._protocol = protocol
        self._transport = protocol.opened
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._ending: _Ending | None = None
        self._is_over = False  # nothing more is read
        self._send_lock = asyncio.Lock()
        self._messages: deque[str | bytes] = deque()
        self._size = 0
        self._arrived = asyncio.Event()
        self._has_space = asyncio.Event()
        self._has_space.set()
        self._take: Callable[[str | bytes], object] = self._keep
        self._late_pong: asyncio.Task[None] | None = None
        self._unanswered_ping = b""
        self._reader = self._loop.create_task(self._read())
        self._heartbeat = None if ping_s is None else self._loop.create_task(self._beat(ping_s))

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the server chose of those that were offered, if it chose one."""
        return self._socket.protocol

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._ending is not None or self._transport.is_closing()

    @property
    def ended_well(self) -> bool:
        """Whether the server closed the connection with a close frame of a normal closure."""
        return self._ending is not None and self._ending.is_normal

    async def send(self, message: str | bytes, *, deadline: float | None = None) -> None:
        """Send a text or binary message after those that were sent before it.

        Waits while the server does not read what was sent before, until the loop's time is `deadline`, which is a
        TimeoutError. A ToolConnectionError has `sent=False`: the connection was closed before any of the message left.
        All waiting is done before anything is written, so that a `send` that is cancelled has sent nothing.
        """
        kind, data = (_TEXT, message.encode()) if isinstance(message, str) else (_BINARY, message)
        if self._send_lock.locked() or not self._protocol.has_room.is_set() or len(data) >= _LONG_MESSAGE:
            async with asyncio.timeout_at(deadline), self._send_lock:
                await asyncio.sleep(0)  # a sender without end lets others in
                await self._protocol.has_room.wait()
        if self.closed:
            raise ToolConnectionError(self._closed_message(), sent=False)
        await self._socket.send_frame(data, kind)

    async def receive(self) -> str | bytes:
        """Wait for the next message and return it whole; a `receive` that is cancelled loses no message.

        A closed or broken connection is a ToolConnectionError (`sent=True`) with the close code and its reason.
        A message above the limit is a ToolClientError with the code `response_too_large`, and closes the connection.
        """
        while not self._messages:
            if self._is_over:
                raise self._failure()
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages.popleft()
        self._size -= len(message) + _MESSAGE_OVERHEAD
        if self._size <= _LOW_WATER:
            self._has_space.set()
        return message

    async def listen(self, take: Callable[[str | bytes], object]) -> NoReturn:
        """Pass every message to `take` as it comes, in place of `receive`; `take` may neither wait nor fail.

        It ends with the same errors as `receive`.
        """
        while self._messages:
            take(self._messages.popleft())
        self._size, self._take = 0, take
        self._has_space.set()
        try:
            await self._read_to_end()
        finally:
            if self._take is take:  # not while `close` drops what comes
                self._take = self._keep
        raise self._failure()

    async def close(self) -> None:
        """Send a close frame, wait a moment for the server's, and close the connection; safe to call twice."""
        self._take = _drop
        self._has_space.set()
        try:
            if self._ending is None:
                self._ending = _Ending("it was closed on this side")
                self._messages.clear()
                await self._send_close(aiohttp.WSCloseCode.OK.to_bytes(2, "big"))
            await self._read_to_end(timeout_s=_CLOSE_S)
        finally:
            self._transport.abort()  # even while it closes: what the server does not take would hold it
            await self._read_to_end()
            await self._session.close()

    async def _read_to_end(self, timeout_s: float | None = None) -> None:
        if not self._reader.done():  # one that is done may belong to a loop that is closed
            await asyncio.wait([self._reader], timeout=timeout_s)

    async def _read(self) -> None:
        """Deliver messages and answer pings until the connection ends."""
        receive = self._socket.receive
        try:
            while True:
                for _ in range(_MESSAGES_PER_TURN):
                    message = await receive()
                    kind = message.type
                    if kind is _TEXT or kind is _BINARY:
                        self._take(message.data)
                    elif kind is _PING:
                        await self._pong(message.data)
                    elif kind is not _PONG:
                        await self._end(message)
                        return
                    if self._size > _HIGH_WATER:
                        await self._has_space.wait()
                await asyncio.sleep(0)
        finally:
            self._release()
            await self._socket.close()

    def _keep(self, message: str | bytes) -> None:
        self._messages.append(message)
        self._size += len(message) + _MESSAGE_OVERHEAD
        if self._size > _HIGH_WATER:
            self._has_space.clear()
        self._arrived.set()

    async def _pong(self, payload: bytes) -> None:
        """Answer a ping; while the server takes nothing, only the last one is kept (RFC 6455 §5.5.3)."""
        if self._protocol.has_room.is_set():
            with contextlib.suppress(aiohttp.ClientError):
                await self._socket.pong(payload)
            return
        self._unanswered_ping = payload
        if self._late_pong is None or self._late_pong.done():
            self._late_pong = self._loop.create_task(self._pong_late())

    async def _pong_late(self) -> None:
        await self._protocol.has_room.wait()
        with contextlib.suppress(aiohttp.ClientError):
            await self._socket.pong(self._unanswered_ping)

    async def _end(self, message: aiohttp.WSMessage) -> None:
        """Note why the connection ends, and answer the server's close frame; aiohttp has answered a wrong frame."""
        if self._ending is None:
            self._ending, answer = _ending_of(message)
            if answer is not None:
                await self._send_close(answer)

    async def _send_close(self, payload: bytes) -> None:
        with contextlib.suppress(aiohttp.ClientError):
            await self._socket.send_frame(payload, _CLOSE)

    def _release(self) -> None:
        """Close the transport and wake everybody who waits."""
        self._ending = self._ending or _LOST
        self._is_over = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._arrived.set()
        self._protocol.close_within(_CLOSE_S)

    async def _beat(self, every_s: float) -> None:
        """Ping a silent server, and abort the connection when no answer comes.

        aiohttp's own heartbeat also gives up a server that reads a long message slowly, one that is not read from,
        and one whose answer came while this process was suspended.
        """
        patience_s = every_s * _PONG_SHARE
        protocol, transport, time = self._protocol, self._transport, self._loop.time
        while True:
            silent_s = time() - protocol.received_at
            if silent_s < every_s or not self._has_space.is_set():
                await asyncio.sleep(every_s - silent_s if silent_s < every_s else patience_s)
                continue
            pinged_at = time()
            with contextlib.suppress(aiohttp.ClientError):
                await self._socket.ping()
            unsent = transport.get_write_buffer_size()
            await asyncio.sleep(patience_s)
            is_taking = transport.get_write_buffer_size() < unsent
            was_suspended = time() - pinged_at > patience_s * _SUSPENDED
            if protocol.received_at < pinged_at and not is_taking and not was_suspended:
                break
        self._ending = self._ending or _Ending(f"no PONG received after {patience_s:g} s")
        transport.abort()

    def _failure(self) -> ToolError:
        if self._ending is not None and self._ending.is_too_big:
            limit = f"larger than {self._request.max_message_bytes:,} bytes"
            message = f"{self._request.subject}: a message is {limit}; ask for less or raise max_message_bytes"
            return ToolClientError(message, code="response_too_large")
        return ToolConnectionError(self._closed_message(), sent=True)

    def _closed_message(self) -> str:
        reason = "" if self._ending is None else f" ({self._ending.reason})"
        return f"{self._request.subject}: the connection is closed{reason}"


class _Connector(aiohttp.BaseConnector):
    """Connects to the one address, once, and verifies that the peer has it before anything is sent."""

    def __init__(self, request: _Request) -> None:
        super().__init__(limit=1, force_close=True)
        self._request = request
        self.protocol = _Protocol(self._loop)
        self._is_used = False

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's word for it
    ) -> ResponseHandler:
        address = self._request.route.address
        if req.url.raw_host != str(address):
            raise ToolPermissionError("a handshake leads nowhere else", code=REFUSED)
        if self._is_used:  # aiohttp would send the handshake again; whether to is not for it to say
            raise aiohttp.ClientConnectionError("the server closed the connection without an answer")
        self._is_used = True
        try:
            options = await self._request.route.connect_options(self._request.proxy)
            transport, protocol = await self._loop.create_connection(lambda: self.protocol, **options)
        except OSError as failed:  # also what TLS raises
            raise connect_error(failed, self._request.subject, self._request.route, 0) from None
        if self._request.proxy is None:
            try:
                check_peer(transport.get_extra_info("peername"), address)
            except ToolPermissionError:
                transport.abort()
                raise
        return protocol


class _Protocol(ResponseHandler):
    """aiohttp's protocol, which also notes when something came and whether the server takes what is sent.

    aiohttp is not told to pause: it would write a message first and then wait, so that one that is given up had
    left all the same.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._abort: asyncio.TimerHandle | None = None
        self._is_lost = False
        self.opened: asyncio.Transport
        self.received_at = 0.0
        self.has_room = asyncio.Event()
        self.has_room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.opened = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.received_at = self._loop.time()
        super().data_received(data)

    def pause_writing(self) -> None:
        self.has_room.clear()

    def resume_writing(self) -> None:
        self.has_room.set()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._is_lost = True
        self.has_room.set()
        if self._abort is not None:
            self._abort.cancel()

    def close_within(self, seconds: float) -> None:
        """Close the transport; one whose server does not take what was sent is aborted when the time is up."""
        self.has_room.set()
        if not self._is_lost and self._abort is None:
            self.opened.close()
            self._abort = self._loop.call_later(seconds, self.opened.abort)


class _WebSocketResponse(aiohttp.ClientWebSocketResponse):
    """aiohttp's connection: sends nothing compressed, and names what is wrong with a compressed message."""

    def __init__(self, reader: Any, writer: Any, *args: Any, **options: Any) -> None:
        super().__init__(reader, writer, *args, **options)
        writer.compress = 0  # our messages are short: only what the server sends is worth compressing
        writer.transport = _FrameBuffer(writer.protocol)

    async def close(self, *, code: int = aiohttp.WSCloseCode.OK, message: bytes = b"") -> bool:
        """Close the connection; what cannot be decompressed is invalid data, and no normal closure."""
        return await super().close(
            code=code if self.exception() is None else aiohttp.WSCloseCode.INVALID_TEXT, message=message
        )


class _FrameBuffer:
    """Write buffer for frames: short ones of one turn of the event loop are written in one system call.

    The first frame after something was received is written at once, since a sequential caller has no second.
    So are control frames, with the frames before them: aiohttp closes the transport after a close frame.
    """

    __slots__ = ("_frames", "_loop", "_protocol", "_received_at", "_size", "_transport", "is_closing")

    def __init__(self, protocol: _Protocol) -> None:
        self._protocol = protocol
        self._transport = transport = protocol.opened
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []
        self._size = 0
        self._received_at = 0.0
        self.is_closing = transport.is_closing

    def write(self, frame: bytes) -> None:
        """Write a frame, by the end of this turn of the event loop."""
        if not self._frames:
            received_at = self._protocol.received_at
            if received_at != self._received_at:
                self._received_at = received_at
                self._transport.write(frame)
                return
            self._loop.call_soon(self._flush)
        self._frames.append(frame)
        self._size += len(frame)
        if self._size > _PACKET_BYTES or frame[0] & _CONTROL_BIT:
            self._flush()

    def _flush(self) -> None:
        frames, self._frames, self._size = self._frames, [], 0
        if frames:
            self._transport.write(b"".join(frames))


class _HandshakeResponse(aiohttp.ClientResponse):
    """The answer to a handshake, whose fields RFC 6455 §4.1 lets be written in more ways than aiohttp accepts."""

    @property
    def headers(self) -> CIMultiDictProxy[str]:  # pyright: ignore[reportIncompatibleVariableOverride] - it caches there
        """The header fields, with a list of tokens that holds `upgrade`, or an accepted extension, in plain form."""
        fields = CIMultiDict(super().headers)
        if "upgrade" in {token.strip().lower() for token in _all(fields, "Connection").split(",")}:
            fields["Connection"] = "upgrade"
        if _DEFLATE_ACCEPTED.fullmatch(_all(fields, "Sec-WebSocket-Extensions").strip()):
            fields["Sec-WebSocket-Extensions"] = _DEFLATE
        return CIMultiDictProxy(fields)


def _all(fields: CIMultiDict[str] | CIMultiDictProxy[str], name: str) -> str:
    """Return the values of all fields of a name as one list (RFC 9110 §5.3)."""
    return ", ".join(fields.getall(name, ()))


async def _check_handshake(
    request: _Request, sent: aiohttp.ClientRequest, handler: ClientHandlerType
) -> aiohttp.ClientResponse:
    """Raise when the answer is no change of protocols or chose what was not offered (RFC 6455 §4.1).

    aiohttp middleware: it comes before aiohttp follows a redirect. The key is verified by aiohttp.
    """
    response = await handler(sent)
    with contextlib.ExitStack() as stack:
        stack.callback(response.close)
        if (error := await _handshake_refusal(response, request)) is not None:
            raise error
        stack.pop_all()
    return response


async def _handshake_refusal(response: aiohttp.ClientResponse, request: _Request) -> ToolError | None:
    if response.status != HTTPStatus.SWITCHING_PROTOCOLS:
        return await _status_error(response, request)
    if _all(response.headers, "Sec-WebSocket-Extensions") not in {"", _DEFLATE}:
        return _no_websocket(request, "it chose an extension that was not offered")
    chosen = response.headers.get("Sec-WebSocket-Protocol")
    if chosen is not None and chosen.strip() not in request.subprotocols:
        return _no_websocket(request, "it chose a subprotocol that was not offered")
    return None


async def _status_error(response: aiohttp.ClientResponse, request: _Request) -> ToolError:
    status = response.status
    head = f"{request.subject} refused the WebSocket handshake with {status} {response.reason or ''}".rstrip()
    if 300 <= status < 400:
        return from_status(status, f"{head}; redirects are not followed: write the URL that it leads to")
    body = await _body_text(response)
    error = from_status(status, f"{head}: {body}" if body else head)
    error.retry_after_s = parse_retry_after(Headers(tuple(response.headers.items())))
    return error


async def _body_text(response: aiohttp.ClientResponse) -> str:
    """Return the beginning of a body in plain text, on one line."""
    if response.content_type not in {"text/plain", "application/json", "application/problem+json"}:
        return ""
    with contextlib.suppress(aiohttp.ClientError, OSError):
        async with asyncio.timeout(_CLOSE_S):
            body = await response.content.read(_BODY_BYTES)
            return _one_line(body.decode(errors="replace"))
    return ""


def _handshake_error(failed: Exception, request: _Request) -> ToolError:
    # What aiohttp says of an answer holds all of the URL, whose path or query may hold a key.
    reason = _one_line(failed.message if isinstance(failed, aiohttp.ClientResponseError) else str(failed))
    if isinstance(failed, aiohttp.WSServerHandshakeError):
        return _no_websocket(request, reason.lower())
    message = f"{request.subject}: the WebSocket handshake failed ({reason or type(failed).__name__})"
    return ToolConnectionError(message, sent=False)


def _no_websocket(request: _Request, reason: str) -> ToolClientError:
    return ToolClientError(f"{request.subject} does not speak WebSocket: {reason}", code="handshake_refused")


def _ending_of(message: aiohttp.WSMessage) -> tuple[_Ending, bytes | None]:
    """Return why a connection ends with a message that is no data, and the payload of the close frame it wants."""
    if message.type is _CLOSE:
        code: int = message.data
        if code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE or code > _MAX_CLOSE_CODE:  # which aiohttp lets through
            return _Ending(f"{_WRONG}: Invalid close code: {code}"), aiohttp.WSCloseCode.PROTOCOL_ERROR.to_bytes(
                2, "big"
            )
        reason = _one_line(message.extra or "")
        ending = f"code {code}" if code else "no code"
        is_normal = code in _NORMAL_CLOSURE
        return _Ending(f"{ending}: {reason}" if reason else ending, is_normal), code.to_bytes(2, "big") if code else b""
    if message.type is aiohttp.WSMsgType.ERROR:
        wrong: Exception = message.data
        is_too_big = isinstance(wrong, aiohttp.WebSocketError) and wrong.code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        return _Ending(f"{_WRONG}: {_one_line(str(wrong))}", is_too_big=is_too_big), None
    return _LOST, None


def _one_line(text: str) -> str:
    """Return the beginning of a server's text without line breaks and control characters."""
    line = " ".join(_UNPRINTABLE.sub(" ", text).split())
    # The ellipsis marks the cut for redaction: a secret may have been cut in two.
    return line if len(line) <= _REASON_CHARS else f"{line[:_REASON_CHARS]}…"


def _drop(_: str | bytes) -> None:
    """Take a message for which nobody waits."""
