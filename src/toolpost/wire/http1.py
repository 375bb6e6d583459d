"""HTTP/1.1 transport on asyncio and httptools, with a connection pool; a request is never resent."""

from __future__ import annotations

import asyncio
import math
import re
import select
import ssl
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import NamedTuple, TypeAlias, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from toolpost.contracts.errors import ToolConnectionError, ToolPermissionError
from toolpost.wire.messages import Headers, Request, request_path
from toolpost.wire.proxies import Proxy
from toolpost.wire.routes import Route, check_peer, connect_error

_Key: TypeAlias = tuple[str, str]

_CLOSE_S = 1.0  # for the peer to close a finished connection
_WRITTEN_AT_ONCE = 256 * 1024
_TIMEOUT = re.compile(r"\btimeout\s*=\s*(\d{1,9})", re.IGNORECASE)
_IN_TRANSIT_S = 1.0  # a request that crosses the server's close is lost, and it is unknown whether the server read it

_LONGEST_HEAD = 256 * 1024
_MOST_FIELDS = 1000
_READ_AHEAD = 256 * 1024
_NO_HEADERS = Headers(())
_NEED_LENGTH = frozenset({"POST", "PUT", "PATCH"})


class _Waiter(NamedTuple):
    """A queued request; `turn` is set to a connection, or to None as the permission to open one."""

    key: _Key
    turn: asyncio.Future[Http1Connection | None]


class Http1Transport:
    """Connection pool, keyed by address and the name that TLS verified; the last used connection is taken first.

    A request is never resent. A connection with unsolicited data is closed. At `max_connections`, requests wait in a
    queue.
    """

    def __init__(self, *, max_connections: int = 100, keep_alive_s: float = 15.0, proxy: Proxy | None = None) -> None:
        self._max_connections = max_connections
        self._keep_alive_s = keep_alive_s
        self._proxy = proxy
        self._idle: dict[_Key, list[Http1Connection]] = {}
        self._open: set[Http1Connection] = set()
        self._closing: set[Http1Connection] = set()
        self._opening = 0
        self._queue: deque[_Waiter] = deque()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def send(self, request: Request, route: Route, *, connect_s: float) -> Exchange:
        """Send one request along a route and wait for the head of its response.

        Raises a ToolConnectionError with `sent=False` only if no byte was written, and a ToolPermissionError if the
        peer does not have the route's address.
        """
        exchange = self.begin(request, route)
        if exchange is None:
            connection = await self._acquire((route.base, route.name), request, route, connect_s)
            exchange = connection.begin(request, route)
        await exchange.head()
        return exchange

    def begin(self, request: Request, route: Route) -> Exchange | None:
        """Send one request on an idle connection; None if there is none."""
        connection = self._take_idle((route.base, route.name))
        return None if connection is None else connection.begin(request, route)

    async def close(self) -> None:
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        while self._queue:
            self._pass_on()
        connections = [*self._open, *self._closing]
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait([connection.gone for connection in connections], timeout=_CLOSE_S)
        for connection in connections:
            connection.abort()

    # Called by connections.

    def freed(self, connection: Http1Connection) -> None:
        """Pass a free connection to a waiting request, or keep it."""
        if self._closed:
            connection.close()
            return
        for waiter in self._queue:
            if waiter.key == connection.key:
                self._queue.remove(waiter)
                waiter.turn.set_result(connection)
                return
        connection.idle_since = connection.loop.time()
        self._idle.setdefault(connection.key, []).append(connection)
        if self._queue:
            self._close_idle()
        if self._sweep_timer is None:
            self._sweep_timer = connection.loop.call_later(self._keep_alive_s, self._sweep)

    def lost(self, connection: Http1Connection) -> None:
        """Remove a closed connection."""
        if connection not in self._open:
            return
        self._open.discard(connection)
        if not connection.gone.done():
            self._closing.add(connection)
            connection.gone.add_done_callback(lambda _: self._closing.discard(connection))
        idle = self._idle.get(connection.key)
        if idle and connection in idle:
            idle.remove(connection)
        if self._has_room:
            self._pass_on()

    @property
    def _has_room(self) -> bool:
        return len(self._open) + self._opening < self._max_connections

    def _take_idle(self, key: _Key) -> Http1Connection | None:
        idle = self._idle.get(key)
        while idle:
            connection = idle.pop()
            keep_s = min(self._keep_alive_s, connection.keep_s)
            young = connection.loop.time() - connection.idle_since < keep_s
            if young and connection.is_quiet:
                return connection
            connection.abort()
        return None

    async def _acquire(self, key: _Key, request: Request, route: Route, connect_s: float) -> Http1Connection:
        """Open a connection, or take one that becomes free while the pool is full."""
        if self._has_room or self._close_idle():
            self._opening += 1
        elif (handed := await self._turn(key)) is not None:
            return handed
        try:
            self._refuse_closed(request)
            connection = await self._connect(key, request, route, connect_s)
        finally:
            self._opening -= 1
            if self._queue and self._has_room:
                self._pass_on()
        if self._closed:
            connection.abort()
            self._refuse_closed(request)
        return connection

    def _refuse_closed(self, request: Request) -> None:
        if self._closed:
            raise ToolConnectionError(f"{request.subject}: the transport is closed", sent=False)

    async def _turn(self, key: _Key) -> Http1Connection | None:
        """Wait in the queue; a permission to open a connection is counted in `_opening` before it is given."""
        waiter = _Waiter(key, asyncio.get_running_loop().create_future())
        self._queue.append(waiter)
        try:
            return await waiter.turn
        except BaseException:
            if waiter in self._queue:
                self._queue.remove(waiter)
            elif not waiter.turn.cancelled():  # the turn came together with the cancellation
                handed = waiter.turn.result()
                if handed is not None:
                    self.freed(handed)
                else:
                    self._opening -= 1
                    self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Let the first request in the queue open a connection."""
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.turn.done():
                self._opening += 1
                waiter.turn.set_result(None)
                return

    async def _connect(self, key: _Key, request: Request, route: Route, connect_s: float) -> Http1Connection:
        loop = asyncio.get_running_loop()
        connection = Http1Connection(self, key, loop)
        try:
            async with asyncio.timeout(connect_s):
                await loop.create_connection(lambda: connection, **await route.connect_options(self._proxy))
        except (OSError, ssl.SSLError) as failed:  # also a TimeoutError
            raise connect_error(failed, request.subject, route, connect_s) from None
        self._open.add(connection)
        if self._proxy is None:
            connection.verify_peer(request, route)
        return connection

    def _close_idle(self) -> bool:
        """Make room by closing an idle connection of another host."""
        for idle in self._idle.values():
            if idle:
                idle.pop(0).abort()
                return True
        return False

    def _sweep(self) -> None:
        """Close connections that were idle for `keep_alive_s`."""
        self._sweep_timer = None
        for idle in self._idle.values():
            while idle and idle[0].loop.time() - idle[0].idle_since >= self._keep_alive_s:
                idle.pop(0).close()
        self._idle = {key: idle for key, idle in self._idle.items() if idle}
        oldest = min(
            (idle[0] for idle in self._idle.values()), key=lambda connection: connection.idle_since, default=None
        )
        if oldest is not None:
            self._sweep_timer = oldest.loop.call_at(oldest.idle_since + self._keep_alive_s, self._sweep)


class Http1Connection(asyncio.Protocol):
    """One connection to an address that the guard allowed; it carries one exchange at a time.

    `given_up` is set if this side closed it; a body that ends with the connection is then incomplete.
    """

    def __init__(self, owner: Http1Transport, key: _Key, loop: asyncio.AbstractEventLoop) -> None:
        self.key = key
        self.loop = loop
        self.idle_since = 0.0
        self.keep_s = math.inf
        self.given_up = False
        self.gone: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._pipe: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._poll: select.poll | None = None
        self._writer = _Writer(loop)
        self._close_timer: asyncio.TimerHandle | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether it is open and has received nothing since its last exchange."""
        pipe = self._pipe
        if self.given_up or pipe is None or pipe.is_closing():
            return False
        return self._poll is None or not self._poll.poll(0)

    def begin(self, request: Request, route: Route) -> Exchange:
        """Write a request; a task writes a long body while the response may already arrive."""
        self._exchange = exchange = Exchange(request, self)
        head, body = self._encode_head(request, route), request.body
        if body is None or (isinstance(body, bytes) and len(body) <= _WRITTEN_AT_ONCE):
            exchange.sent_all = True
            self._writer.write(head + body if body else head)
        else:
            self._writer.write(head)
            self._writer.begin(exchange, request)
        return exchange

    def _encode_head(self, request: Request, route: Route) -> bytes:
        lines = [f"{request.method} {request_path(request.url)} HTTP/1.1\r\nHost: {route.host}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in request.header_pairs]
        if isinstance(request.body, bytes):
            lines.append(f"Content-Length: {len(request.body)}\r\n")
        elif request.body is not None:
            lines.append("Transfer-Encoding: chunked\r\n")
        elif request.method in _NEED_LENGTH:
            lines.append("Content-Length: 0\r\n")
        return "".join([*lines, "\r\n"]).encode()

    def verify_peer(self, request: Request, route: Route) -> None:
        """Abort the connection and raise, before anything is sent, unless the peer has the route's address."""
        peer = self._pipe.get_extra_info("peername") if self._pipe else None
        if peer is None:
            self.abort()
            raise ToolConnectionError(
                f"{request.subject}: {route.address} closed the connection immediately", sent=False
            )
        try:
            check_peer(peer, route.address)
        except ToolPermissionError:
            self.abort()
            raise

    def close(self) -> None:
        """Close the connection; abort it if the peer does not close its side within a second."""
        self.given_up = True
        self._writer.stop()
        if self._pipe is not None and self._close_timer is None:
            self._pipe.close()
            self._close_timer = self.loop.call_later(_CLOSE_S, self._pipe.abort)
        self._owner.lost(self)

    # Called by an exchange.

    def done(self, *, reusable: bool) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None and (offered := exchange.headers.get("keep-alive")) is not None:
            self.keep_s = _keep_alive_s(offered)
        if reusable and not self.given_up:
            self._owner.freed(self)
        else:
            self.close()

    def abort(self) -> None:
        self.given_up = True
        self._writer.stop()
        if self._pipe is not None:
            self._pipe.abort()
        self._owner.lost(self)

    def pause_reading(self) -> None:
        if self._pipe is not None:
            self._pipe.pause_reading()

    def resume_reading(self) -> None:
        if self._pipe is not None and not self._pipe.is_closing():
            self._pipe.resume_reading()

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = self._writer.pipe = cast("asyncio.Transport", transport)
        if sys.platform != "win32":
            self._poll = select.poll()
            self._poll.register(self._pipe.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._exchange is None:  # unsolicited data
            self.abort()
        else:
            self._exchange.feed(data)

    def eof_received(self) -> None:
        if self._pipe is not None:  # no more of the response arrives, even if part of the request is not written yet
            self._pipe.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._writer.stop()
        self._writer.go_on()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.lost(exc, ended=not self.given_up)
        self.given_up = True
        self._owner.lost(self)
        if not self.gone.done():
            self.gone.set_result(None)

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.go_on()


def _keep_alive_s(field: str) -> float:
    """Parse how long the server keeps an idle connection; Node closes one after 5 s and announces it in Keep-Alive."""
    timeout = _TIMEOUT.search(field)
    return math.inf if timeout is None else float(timeout[1]) - _IN_TRANSIT_S


class _Writer:
    """Write heads and bodies; a long body is written by a task, as fast as the peer reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.pipe: asyncio.Transport | None = None
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._full: asyncio.Future[None] | None = None

    def write(self, data: bytes) -> None:
        if self.pipe is not None and not self.pipe.is_closing():
            self.pipe.write(data)

    def begin(self, exchange: Exchange, request: Request) -> None:
        self._task = self._loop.create_task(self._run(exchange, request))

    def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def pause(self) -> None:
        self._full = self._loop.create_future()

    def go_on(self) -> None:
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    async def _run(self, exchange: Exchange, request: Request) -> None:
        framed = not isinstance(request.body, bytes)
        try:
            async with aclosing(_pieces_of(request)) as pieces:
                async for piece in pieces:
                    if piece:
                        self.write(b"%x\r\n%b\r\n" % (len(piece), piece) if framed else piece)
                    if self._full is not None:
                        await asyncio.shield(self._full)
        except Exception as error:  # noqa: BLE001 - foreign code; its exception is raised to the caller
            exchange.fail(error)
            return
        if framed:
            self.write(b"0\r\n\r\n")
        exchange.sent_all = True
        self._task = None


async def _pieces_of(request: Request) -> AsyncGenerator[bytes]:
    body = request.body
    if isinstance(body, bytes):
        for start in range(0, len(body), _WRITTEN_AT_ONCE):
            yield body[start : start + _WRITTEN_AT_ONCE]
    elif body is not None:
        async for piece in body:
            yield piece


class Exchange:
    """One request and its response as it arrives, not decompressed; for one reader.

    The connection is free again as soon as the response is complete, even if it is not read yet. A slow reader pauses
    the connection. `on_news` is called once: when the first data of the response is parsed, or when none will arrive.
    """

    __slots__ = (
        "_connection",
        "_failure",
        "_idle_bytes",
        "_interim",
        "_is_headed",
        "_is_paused",
        "_pairs",
        "_parser",
        "_pieces",
        "_request",
        "_until_close",
        "_waiter",
        "ahead_bytes",
        "headers",
        "on_news",
        "sent_all",
        "status",
        "whole",
    )

    def __init__(self, request: Request, connection: Http1Connection) -> None:
        self.status = 0
        self.headers = _NO_HEADERS
        self.whole = False
        self.sent_all = False
        self.on_news: Callable[[], None] | None = None
        self._request = request
        self._connection = connection
        self._failure: Exception | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._pairs: list[tuple[str, str]] = []
        self._is_headed = False
        self._interim = False
        self._until_close = False
        self._idle_bytes = 0  # since the last piece of the body
        self._pieces: list[bytes] = []
        self.ahead_bytes = 0  # of the body, which have arrived but are not read
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"Exchange({self.status})"

    # Called by the reader.

    async def head(self) -> None:
        """Wait for the status and the header fields; on failure, abort the connection."""
        try:
            while not self._is_headed and self._failure is None:
                await self._wait()
        except BaseException:  # cancelled; a failure has aborted the connection
            self.abandon()
            raise
        if not self._is_headed and self._failure is not None:
            raise self._failure

    def take(self) -> bytes | None:
        """Return the whole body if it has arrived; otherwise None, and `chunk` returns it in parts."""
        return self._take_pieces() if self.whole else None

    async def chunk(self) -> bytes:
        """Wait for the next part of the body; empty at its end."""
        while not self._pieces:
            if self.whole:
                return b""
            if self._failure is not None:
                raise self._failure
            await self._wait()
        return self._take_pieces()

    async def close(self) -> None:
        """Abort the connection, unless the response is complete."""
        self.abandon()

    def abandon(self) -> None:
        """Like `close`, without waiting."""
        self.on_news = None
        if not self.whole:
            self._connection.abort()

    def _take_pieces(self) -> bytes:
        pieces, self._pieces, self.ahead_bytes = self._pieces, [], 0
        self._resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._connection.resume_reading()

    # Called by the connection.

    def feed(self, data: bytes) -> None:
        self._idle_bytes += len(data)
        parser = cast("HttpResponseParser", self._parser)
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail("the server switched to another protocol without a request")
        except HttpParserError as error:
            self._fail(f"the answer is not HTTP ({error})")
        if self._idle_bytes > _LONGEST_HEAD:  # a head, a trailer or the frame of a chunk that never ends
            self._fail(f"the head of the answer is longer than {_LONGEST_HEAD:,} bytes")
        if self.whole:
            self._parser = None  # breaks a reference cycle
        if self._is_headed and self.on_news is not None:
            self._tell()

    def _tell(self) -> None:
        on_news, self.on_news = self.on_news, None
        if on_news is not None:
            on_news()

    def lost(self, error: Exception | None, *, ended: bool) -> None:
        """End with the connection; `ended` means that the server closed it, which may end the body."""
        if self.whole:
            return
        if self._until_close and error is None and ended:
            self._finish(reusable=False)
            return
        self._fail(f"the connection broke ({_reason(error)})" if error else "the connection ended too early")

    def fail(self, error: Exception) -> None:
        """Abort the connection and raise an error to the reader, unless the response is complete."""
        if self._failure is None and not self.whole:
            self._failure = error
            self._abort()
            self._tell()

    def _fail(self, reason: str) -> None:
        # The server may have acted on the written bytes.
        self.fail(ToolConnectionError(f"{self._request.subject}: {reason}", sent=True))

    def _abort(self) -> None:
        self._connection.abort()
        self._wake()

    def _finish(self, *, reusable: bool) -> None:
        self.whole = True
        self._resume()
        self._connection.done(reusable=reusable and self.sent_all)
        self._wake()

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self.whole:
            self._abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._pairs.append((name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")))
        if len(self._pairs) > _MOST_FIELDS:
            self._fail(f"the answer has more than {_MOST_FIELDS:,} header fields")

    def on_headers_complete(self) -> None:
        parser = cast("HttpResponseParser", self._parser)
        status = parser.get_status_code()
        if 100 <= status < 200:
            self._interim, self._pairs = True, []
            return
        headers = Headers(tuple(self._pairs))
        chunked = "chunked" in (headers.get("transfer-encoding") or "").lower()
        self._until_close = not (chunked or "content-length" in headers)
        if self._failure is None:
            self.status, self.headers, self._is_headed = status, headers, True
            self._wake()
        if self._request.method == "HEAD":
            self._finish(reusable=parser.should_keep_alive())

    def on_body(self, data: bytes) -> None:
        self._idle_bytes = 0
        if self.whole:
            self._abort()
        elif self._interim:
            self._fail("the answer is not HTTP (an interim answer has a body)")
        else:
            self._pieces.append(data)
            self.ahead_bytes += len(data)
            if self.ahead_bytes > _READ_AHEAD and not self._is_paused:
                self._is_paused = True
                self._connection.pause_reading()
            self._wake()

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif not self.whole:
            self._finish(reusable=cast("HttpResponseParser", self._parser).should_keep_alive())


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
