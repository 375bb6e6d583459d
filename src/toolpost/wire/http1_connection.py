"""One connection of HTTP/1.1, which carries one exchange at a time."""

from __future__ import annotations

import asyncio
import math
import re
import select
import sys
from contextlib import aclosing
from ipaddress import ip_address
from typing import TYPE_CHECKING, Protocol, cast

from toolpost.contracts.errors import ToolConnectionError, ToolPermissionError
from toolpost.wire.addresses import plain
from toolpost.wire.http1_exchange import Exchange, head_of
from toolpost.wire.network import REFUSED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from toolpost.wire.transports import Outgoing

GOODBYE_S = 1.0  # how long a peer may take to let go of a connection that is over
_WRITTEN_AT_ONCE = 256 * 1024
_TIMEOUT = re.compile(r"\btimeout\s*=\s*(\d{1,9})", re.IGNORECASE)
_ON_ITS_WAY_S = 1.0  # a request that meets the server's own goodbye is lost, and nobody knows whether it was read


class Owner(Protocol):
    """Whoever keeps connections."""

    def freed(self, connection: Http1Connection) -> None:
        """It may be used again."""
        ...

    def lost(self, connection: Http1Connection) -> None:
        """It is gone, or as good as gone."""
        ...


class Http1Connection(asyncio.Protocol):
    """A connection to one judged address.

    `given_up` says that its end is our own doing; what was on its way then did not come to its end.
    """

    def __init__(self, owner: Owner, key: tuple[str, str], loop: asyncio.AbstractEventLoop) -> None:
        self.key = key
        self.loop = loop
        self.idle_since = 0.0
        self.keep_s = math.inf
        self.given_up = False
        self.gone: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._pipe: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._looking: select.poll | None = None
        self._writer = _Writer(loop)
        self._goodbye: asyncio.TimerHandle | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether it is open and brings nothing that nobody asked for, the end of the connection included."""
        pipe = self._pipe
        if self.given_up or pipe is None or pipe.is_closing():
            return False
        return self._looking is None or not self._looking.poll(0)

    def begin(self, outgoing: Outgoing) -> Exchange:
        """Write a request; a long body is written while the answer may already come."""
        self._exchange = exchange = Exchange(outgoing, self)
        head, body = head_of(outgoing), outgoing.body
        if body is None or (isinstance(body, bytes) and len(body) <= _WRITTEN_AT_ONCE):
            exchange.sent_all = True
            self._writer.write(head + body if body else head)
        else:
            self._writer.write(head)
            self._writer.begin(exchange, outgoing)
        return exchange

    def verify(self, outgoing: Outgoing) -> None:
        """Make sure, before anything is sent, that the peer is the address that was judged."""
        peer = self._pipe.get_extra_info("peername") if self._pipe else None
        address = outgoing.route.address
        if peer is None:
            self.abort()
            raise ToolConnectionError(f"{outgoing.subject}: {address} closed the connection at once", sent=False)
        if peer[0] != str(address) and plain(ip_address(peer[0])) != address:
            self.abort()
            message = f"the peer {peer[0]} is not {address}, the address that was judged"
            raise ToolPermissionError(message, code=REFUSED)

    def hang_up(self) -> None:
        """Close it in good order; a peer that does not let go is not waited for."""
        self.given_up = True
        self._writer.stop()
        if self._pipe is not None and self._goodbye is None:
            self._pipe.close()
            self._goodbye = self.loop.call_later(GOODBYE_S, self._pipe.abort)
        self._owner.lost(self)

    # What an exchange asks for.

    def done(self, *, reusable: bool) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None and (told := exchange.headers.get("keep-alive")) is not None:
            self.keep_s = _kept_for(told)
        if reusable and not self.given_up:
            self._owner.freed(self)
        else:
            self.hang_up()

    def abort(self) -> None:
        self.given_up = True
        self._writer.stop()
        if self._pipe is not None:
            self._pipe.abort()
        self._owner.lost(self)

    def hold(self) -> None:
        if self._pipe is not None:
            self._pipe.pause_reading()

    def go_on(self) -> None:
        if self._pipe is not None and not self._pipe.is_closing():
            self._pipe.resume_reading()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = self._writer.pipe = cast("asyncio.Transport", transport)
        if sys.platform != "win32":
            self._looking = select.poll()
            self._looking.register(self._pipe.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._exchange is None:  # nobody has asked
            self.abort()
        else:
            self._exchange.feed(data)

    def eof_received(self) -> None:
        if self._pipe is not None:  # no more of an answer comes, whatever of a request is still to be written
            self._pipe.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._goodbye is not None:
            self._goodbye.cancel()
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


def _kept_for(told: str) -> float:
    """How long a connection may wait, by the server's Keep-Alive; Node closes one after 5 s and says so."""
    found = _TIMEOUT.search(told)
    return math.inf if found is None else float(found[1]) - _ON_ITS_WAY_S


class _Writer:
    """Writes what there is to say, a long body as fast as it is taken, while the answer may already come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.pipe: asyncio.Transport | None = None
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._full: asyncio.Future[None] | None = None

    def write(self, data: bytes) -> None:
        """Write this, unless the connection is gone."""
        if self.pipe is not None and not self.pipe.is_closing():
            self.pipe.write(data)

    def begin(self, exchange: Exchange, outgoing: Outgoing) -> None:
        """Start writing a body."""
        self._task = self._loop.create_task(self._run(exchange, outgoing))

    def stop(self) -> None:
        """Nobody wants more of it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def pause(self) -> None:
        """There is no room."""
        self._full = self._loop.create_future()

    def go_on(self) -> None:
        """There is room again, or no connection any more."""
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    async def _run(self, exchange: Exchange, outgoing: Outgoing) -> None:
        framed = not isinstance(outgoing.body, bytes)
        try:
            async with aclosing(_pieces_of(outgoing)) as pieces:
                async for piece in pieces:
                    if piece:
                        self.write(b"%x\r\n%b\r\n" % (len(piece), piece) if framed else piece)
                    if self._full is not None:
                        await asyncio.shield(self._full)
        except Exception as error:  # noqa: BLE001 - foreign code; what the source of a body raises is its caller's to hear
            exchange.break_off(error)
            return
        if framed:
            self.write(b"0\r\n\r\n")
        exchange.sent_all = True
        self._task = None


async def _pieces_of(outgoing: Outgoing) -> AsyncGenerator[bytes]:
    body = outgoing.body
    if isinstance(body, bytes):
        for start in range(0, len(body), _WRITTEN_AT_ONCE):
            yield body[start : start + _WRITTEN_AT_ONCE]
    elif body is not None:
        async for piece in body:
            yield piece
