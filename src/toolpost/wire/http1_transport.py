"""HTTP/1.1 over asyncio's own connections, read by httptools: the cheapest transport, and the default."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from toolpost.contracts.errors import ErrorCategory, ToolConnectionError, ToolPermissionError
from toolpost.wire.addresses import plain
from toolpost.wire.guard import REFUSED
from toolpost.wire.http1_exchange import Exchange, head_of
from toolpost.wire.tls import ssl_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from toolpost.wire.proxies import Proxy
    from toolpost.wire.transports import Outgoing, Route

_WRITTEN_AT_ONCE = 256 * 1024
_GOODBYE_S = 1.0
_Key: TypeAlias = tuple[str, str]


class Http1Transport:
    """Connections that are kept by address and by the name that TLS verified; the last one used is taken first.

    Nothing is ever sent twice. A connection that brings more than was asked for is not used again.
    """

    def __init__(self, *, max_connections: int = 100, keep_alive_s: float = 15.0, proxy: Proxy | None = None) -> None:
        self._max_connections = max_connections
        self._keep_alive_s = keep_alive_s
        self._proxy = proxy
        self._idle: dict[_Key, list[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._opening = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def send(self, outgoing: Outgoing) -> Exchange:
        """Send one request and wait for the head of its answer."""
        key = (outgoing.route.base, outgoing.route.name)
        connection = self._kept(key) or await self._fresh(key, outgoing)
        exchange = connection.begin(outgoing)
        try:
            if not exchange.sent_all:
                await connection.send_body(exchange, outgoing)
            await exchange.head()
        except BaseException:
            connection.abort()
            raise
        return exchange

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._wake(len(self._waiting))
        connections = list(self._open)
        for connection in connections:
            connection.hang_up()
        if connections:
            await asyncio.wait([connection.gone for connection in connections], timeout=_GOODBYE_S)
        for connection in connections:
            connection.abort()

    def free(self, connection: _Connection) -> None:
        """A connection may be used again."""
        if self._closed:
            connection.hang_up()
            return
        connection.idle_since = connection.loop.time()
        self._idle.setdefault(connection.key, []).append(connection)
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(self._keep_alive_s, self._sweep)
        self._wake(1)

    def lost(self, connection: _Connection) -> None:
        """A connection is gone."""
        self._open.discard(connection)
        kept = self._idle.get(connection.key)
        if kept and connection in kept:
            kept.remove(connection)
        self._wake(1)

    def _kept(self, key: _Key) -> _Connection | None:
        kept = self._idle.get(key)
        while kept:
            connection = kept.pop()
            if not connection.closing and connection.loop.time() - connection.idle_since < self._keep_alive_s:
                return connection
            connection.hang_up()
        return None

    async def _fresh(self, key: _Key, outgoing: Outgoing) -> _Connection:
        """A new connection, or one that became free while there was no room for another."""
        while not self._closed and len(self._open) + self._opening >= self._max_connections:
            if not self._close_idle():
                await self._room()
            if (kept := self._kept(key)) is not None:
                return kept
        if self._closed:
            raise ToolConnectionError(f"{outgoing.subject}: the transport is closed", sent=False)
        self._opening += 1
        try:
            return await self._connect(key, outgoing)
        finally:
            self._opening -= 1

    async def _connect(self, key: _Key, outgoing: Outgoing) -> _Connection:
        loop, route = asyncio.get_running_loop(), outgoing.route
        try:
            async with asyncio.timeout(outgoing.connect_s):
                connection = _Connection(self, key, loop)
                await loop.create_connection(lambda: connection, **await self._way(route))
        except (OSError, ssl.SSLError) as failed:  # also a TimeoutError
            raise _no_connection(failed, outgoing) from None
        self._open.add(connection)
        if self._proxy is None:
            connection.verify(outgoing)
        return connection

    async def _way(self, route: Route) -> dict[str, Any]:
        """The judged address itself, or a tunnel to it; and who TLS has to find there."""
        secure = {"ssl": ssl_context(), "server_hostname": route.name} if route.scheme == "https" else {}
        if self._proxy is None:
            return {"host": str(route.address), "port": route.port, **secure}
        return {"sock": await self._proxy.dial(route.address, route.port), **secure}

    def _close_idle(self) -> bool:
        """Make room by closing what waits for another host."""
        for kept in self._idle.values():
            if kept:
                kept.pop(0).abort()
                return True
        return False

    async def _room(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self._wake(1)  # the turn is another's
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiter)

    def _wake(self, count: int) -> None:
        for waiter in self._waiting:
            if count and not waiter.done():
                waiter.set_result(None)
                count -= 1

    def _sweep(self) -> None:
        """Close what nobody has used for a while."""
        self._sweeping = None
        for kept in self._idle.values():
            while kept and kept[0].loop.time() - kept[0].idle_since >= self._keep_alive_s:
                kept.pop(0).hang_up()
        self._idle = {key: kept for key, kept in self._idle.items() if kept}
        oldest = min((kept[0] for kept in self._idle.values()), key=lambda found: found.idle_since, default=None)
        if oldest is not None:
            self._sweeping = oldest.loop.call_at(oldest.idle_since + self._keep_alive_s, self._sweep)


class _Connection(asyncio.Protocol):
    """One connection, which carries one exchange at a time."""

    def __init__(self, transport: Http1Transport, key: _Key, loop: asyncio.AbstractEventLoop) -> None:
        self.key = key
        self.loop = loop
        self.idle_since = 0.0
        self.closing = False
        self.gone: asyncio.Future[None] = loop.create_future()
        self._owner = transport
        self._pipe: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._full: asyncio.Future[None] | None = None

    def begin(self, outgoing: Outgoing) -> Exchange:
        """Write a request; a body that is short goes along at once."""
        self._exchange = exchange = Exchange(outgoing, self)
        head, body = head_of(outgoing), outgoing.body
        short = isinstance(body, bytes) and len(body) <= _WRITTEN_AT_ONCE
        exchange.sent_all = short or body is None
        self._write(head + body if isinstance(body, bytes) and short else head)
        return exchange

    async def send_body(self, exchange: Exchange, outgoing: Outgoing) -> None:
        """Write a long body as fast as it is taken; a server that has answered wants no more of it."""
        framed = not isinstance(outgoing.body, bytes)
        async for piece in _pieces_of(outgoing):
            if exchange.whole or self.closing:
                return
            if framed and piece:
                self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
            elif piece:
                self._write(piece)
            if self._full is not None:
                await self._full
        if framed:
            self._write(b"0\r\n\r\n")
        exchange.sent_all = True

    def verify(self, outgoing: Outgoing) -> None:
        """Make sure, before anything is sent, that the peer is the address that was judged."""
        peer = self._pipe.get_extra_info("peername") if self._pipe else None
        address = outgoing.route.address
        if peer is None or not (peer[0] == str(address) or plain(ip_address(peer[0])) == address):
            self.abort()
            message = f"the peer {peer and peer[0]} is not {address}, the address that was judged"
            raise ToolPermissionError(message, code=REFUSED)

    def hang_up(self) -> None:
        """Close it in good order."""
        self.closing = True
        if self._pipe is not None:
            self._pipe.close()

    # What an exchange asks for.

    def done(self, exchange: Exchange, *, reusable: bool) -> None:
        self._exchange = None
        if reusable and not self.closing:
            self._owner.free(self)
        else:
            self.hang_up()

    def abort(self) -> None:
        self.closing = True
        if self._pipe is not None:
            self._pipe.abort()

    def hold(self) -> None:
        if self._pipe is not None:
            self._pipe.pause_reading()

    def go_on(self) -> None:
        if self._pipe is not None and not self.closing:
            self._pipe.resume_reading()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._exchange is None:  # nobody has asked
            self.abort()
        else:
            self._exchange.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self.resume_writing()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.lost(exc)
        self._owner.lost(self)
        if not self.gone.done():
            self.gone.set_result(None)

    def pause_writing(self) -> None:
        self._full = self.loop.create_future()

    def resume_writing(self) -> None:
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    def _write(self, data: bytes) -> None:
        if self._pipe is not None:
            self._pipe.write(data)


async def _pieces_of(outgoing: Outgoing) -> AsyncIterator[bytes]:
    body = outgoing.body
    if isinstance(body, bytes):
        for start in range(0, len(body), _WRITTEN_AT_ONCE):
            yield body[start : start + _WRITTEN_AT_ONCE]
    elif body is not None:
        async for piece in body:
            yield piece


def _no_connection(failed: OSError, outgoing: Outgoing) -> ToolConnectionError:
    subject, address = outgoing.subject, outgoing.route.address
    match failed:
        case TimeoutError() if failed.errno is None:
            message = f"{subject}: no connection to {address} within {outgoing.connect_s:g} s"
            return ToolConnectionError(message, sent=False)
        case ssl.SSLCertVerificationError():
            message = f"{subject}: the server's certificate is refused ({failed.verify_message})"
            return ToolConnectionError(message, sent=False, category=ErrorCategory.NON_RETRYABLE_CLIENT)
        case _:
            reason = failed.strerror or failed
            return ToolConnectionError(f"{subject}: no connection to {address} ({reason})", sent=False)
