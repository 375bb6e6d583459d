"""HTTP/1.1 over asyncio's own connections, read by httptools: the cheapest transport, and the default."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from toolpost.contracts.errors import ErrorCategory, ToolConnectionError
from toolpost.wire.http1_connection import GOODBYE_S, Http1Connection
from toolpost.wire.proxies import ProxyError
from toolpost.wire.tls import ssl_context

if TYPE_CHECKING:
    from toolpost.wire.http1_exchange import Exchange
    from toolpost.wire.proxies import Proxy
    from toolpost.wire.transports import Outgoing, Route

_Key: TypeAlias = tuple[str, str]


class _Waiter(NamedTuple):
    """Somebody in the queue; what comes is a connection, or None for a place to open one."""

    key: _Key
    turn: asyncio.Future[Http1Connection | None]


class Http1Transport:
    """Connections that are kept by address and by the name that TLS verified; the last one used is taken first.

    Nothing is ever sent twice. A connection that brings more than was asked for is not used again. Where there are
    no more connections to be had, requests wait in a queue.
    """

    def __init__(self, *, max_connections: int = 100, keep_alive_s: float = 15.0, proxy: Proxy | None = None) -> None:
        self._max_connections = max_connections
        self._keep_alive_s = keep_alive_s
        self._proxy = proxy
        self._idle: dict[_Key, list[Http1Connection]] = {}
        self._open: set[Http1Connection] = set()
        self._leaving: set[Http1Connection] = set()
        self._opening = 0
        self._queue: deque[_Waiter] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def send(self, outgoing: Outgoing) -> Exchange:
        """Send one request and wait for the head of its answer."""
        key = (outgoing.route.base, outgoing.route.name)
        connection = self._kept(key) or await self._another(key, outgoing)
        exchange = connection.begin(outgoing)
        try:
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
        while self._queue:
            self._pass_on()
        connections = [*self._open, *self._leaving]
        for connection in connections:
            connection.hang_up()
        if connections:
            await asyncio.wait([connection.gone for connection in connections], timeout=GOODBYE_S)
        for connection in connections:
            connection.abort()

    # What connections tell.

    def freed(self, connection: Http1Connection) -> None:
        """A connection may be used again: by whoever waits for it, or later."""
        if self._closed:
            connection.hang_up()
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
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(self._keep_alive_s, self._sweep)

    def lost(self, connection: Http1Connection) -> None:
        """A connection is gone, or as good as gone."""
        if connection not in self._open:
            return
        self._open.discard(connection)
        if not connection.gone.done():
            self._leaving.add(connection)
            connection.gone.add_done_callback(lambda _: self._leaving.discard(connection))
        kept = self._idle.get(connection.key)
        if kept and connection in kept:
            kept.remove(connection)
        if self._has_room:
            self._pass_on()

    # Connections to be had.

    @property
    def _has_room(self) -> bool:
        return len(self._open) + self._opening < self._max_connections

    def _kept(self, key: _Key) -> Http1Connection | None:
        kept = self._idle.get(key)
        while kept:
            connection = kept.pop()
            keep_s = min(self._keep_alive_s, connection.keep_s)
            young = connection.loop.time() - connection.idle_since < keep_s
            if young and connection.is_quiet:
                return connection
            connection.abort()
        return None

    async def _another(self, key: _Key, outgoing: Outgoing) -> Http1Connection:
        """A new connection, or one that became free while there was no room for another."""
        if self._has_room or self._close_idle():
            self._opening += 1
        elif (handed := await self._turn(key)) is not None:
            return handed
        try:
            self._refuse_closed(outgoing)
            connection = await self._connect(key, outgoing)
        finally:
            self._opening -= 1
            if self._queue and self._has_room:
                self._pass_on()
        if self._closed:
            connection.abort()
            self._refuse_closed(outgoing)
        return connection

    def _refuse_closed(self, outgoing: Outgoing) -> None:
        if self._closed:
            raise ToolConnectionError(f"{outgoing.subject}: the transport is closed", sent=False)

    async def _turn(self, key: _Key) -> Http1Connection | None:
        """Wait in the queue; a place to open a connection is counted before it is handed on."""
        waiter = _Waiter(key, asyncio.get_running_loop().create_future())
        self._queue.append(waiter)
        try:
            return await waiter.turn
        except BaseException:
            if waiter in self._queue:
                self._queue.remove(waiter)
            elif not waiter.turn.cancelled():  # the turn came together with the wish to stop: it is another's
                self._give_back(waiter.turn.result())
            raise

    def _give_back(self, handed: Http1Connection | None) -> None:
        if handed is not None:
            self.freed(handed)
            return
        self._opening -= 1
        self._pass_on()

    def _pass_on(self) -> None:
        """Let the first in the queue open a connection."""
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.turn.done():
                self._opening += 1
                waiter.turn.set_result(None)
                return

    async def _connect(self, key: _Key, outgoing: Outgoing) -> Http1Connection:
        loop, route = asyncio.get_running_loop(), outgoing.route
        connection = Http1Connection(self, key, loop)
        try:
            async with asyncio.timeout(outgoing.connect_s):
                await loop.create_connection(lambda: connection, **await _way(route, self._proxy))
        except (OSError, ssl.SSLError) as failed:  # also a TimeoutError
            raise _no_connection(failed, outgoing) from None
        self._open.add(connection)
        if self._proxy is None:
            connection.verify(outgoing)
        return connection

    def _close_idle(self) -> bool:
        """Make room by closing one that waits for another host."""
        for kept in self._idle.values():
            if kept:
                kept.pop(0).abort()
                return True
        return False

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


async def _way(route: Route, proxy: Proxy | None) -> dict[str, Any]:
    """The judged address itself, or a tunnel to it; and who TLS has to find there."""
    secure = {"ssl": ssl_context(), "server_hostname": route.name} if route.scheme == "https" else {}
    if proxy is None:
        return {"host": str(route.address), "port": route.port, **secure}
    return {"sock": await proxy.dial(route.address, route.port), **secure}


def _no_connection(failed: OSError, outgoing: Outgoing) -> ToolConnectionError:
    subject, address = outgoing.subject, outgoing.route.address
    match failed:
        case TimeoutError() if failed.errno is None:
            message = f"{subject}: no connection to {address} within {outgoing.connect_s:g} s"
            return ToolConnectionError(message, sent=False)
        case ssl.SSLCertVerificationError():
            message = f"{subject}: the server's certificate is refused ({failed.verify_message})"
            return ToolConnectionError(message, sent=False, category=ErrorCategory.NON_RETRYABLE_CLIENT)
        case ProxyError():
            return ToolConnectionError(f"{subject}: {failed}", sent=False)
        case _:
            reason = failed.strerror or failed
            return ToolConnectionError(f"{subject}: no connection to {address} ({reason})", sent=False)
