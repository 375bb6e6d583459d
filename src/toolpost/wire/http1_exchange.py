"""One request of HTTP/1.1 and its answer, as it comes in piece by piece."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from toolpost.contracts.errors import ToolConnectionError
from toolpost.wire.headers import Headers

if TYPE_CHECKING:
    from toolpost.wire.transports import Outgoing

_LONGEST_HEAD = 256 * 1024
_MOST_FIELDS = 1000
_READ_AHEAD = 256 * 1024
_NO_HEADERS = Headers(())
_NEED_LENGTH = frozenset({"POST", "PUT", "PATCH"})


class Line(Protocol):
    """The connection under an exchange."""

    def done(self, *, reusable: bool) -> None:
        """The answer is whole."""
        ...

    def abort(self) -> None:
        """Give the connection up at once."""
        ...

    def hold(self) -> None:
        """Read no further for now."""
        ...

    def go_on(self) -> None:
        """Read again."""
        ...


class Exchange:
    """What the parser has told so far; it fulfils `Incoming` once the head is there.

    The connection is free as soon as the answer is whole, whoever reads it when.
    """

    __slots__ = (
        "_failure",
        "_inbox",
        "_line",
        "_outgoing",
        "_reading",
        "headed",
        "headers",
        "sent_all",
        "status",
        "whole",
    )

    def __init__(self, outgoing: Outgoing, line: Line) -> None:
        self.status = 0
        self.headers = _NO_HEADERS
        self.headed = False
        self.whole = False
        self.sent_all = False
        self._outgoing = outgoing
        self._line = line
        self._inbox = _Inbox(line)
        self._reading = _Reading(self, outgoing.method)
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"Exchange({self.status})"

    async def head(self) -> None:
        """Wait until status and fields are there."""
        while not self.headed:
            if self._failure is not None:
                raise self._failure
            await self._inbox.news()

    def take(self) -> bytes | None:
        return self._inbox.taken() if self.whole else None

    async def chunk(self) -> bytes:
        while not self._inbox.pieces:
            if self.whole:
                return b""
            if self._failure is not None:
                raise self._failure
            await self._inbox.news()
        return self._inbox.taken()

    async def close(self) -> None:
        if not self.whole:
            self._line.abort()

    def feed(self, data: bytes) -> None:
        """Bytes came."""
        self._reading.feed(data)

    def lost(self, error: Exception | None, *, ended: bool) -> None:
        """The connection is gone; `ended` says that the other side wanted it so."""
        if self.whole:
            return
        if self._reading.until_close and error is None and ended:
            self.finish(reusable=False)
            return
        self.fail(f"the connection broke ({_reason(error)})" if error else "the connection ended too early")

    def begin(self, status: int, headers: Headers) -> None:
        """The head is there."""
        if self._failure is None:
            self.status, self.headers, self.headed = status, headers, True
            self._inbox.wake()

    def add(self, data: bytes) -> None:
        """Some of the body is there."""
        self._inbox.put(data)

    def finish(self, *, reusable: bool) -> None:
        """The answer came to its end."""
        self.whole = True
        self._inbox.release()
        self._line.done(reusable=reusable and self.sent_all)
        self._inbox.wake()

    def fail(self, reason: str) -> None:
        """Nothing more will come; whatever was written may have been read and acted upon."""
        if self._failure is None and not self.whole:
            self._failure = ToolConnectionError(f"{self._outgoing.subject}: {reason}", sent=True)
            self.give_up()

    def break_off(self, error: Exception) -> None:
        """The request cannot be sent to its end, for this reason of the caller's own."""
        if self._failure is None and not self.whole:
            self._failure = error
            self.give_up()

    def give_up(self) -> None:
        """More came than was asked for, or nothing more can be done."""
        self._line.abort()
        self._inbox.wake()


class _Reading:
    """What the parser tells, under names of its own, until the answer is whole."""

    __slots__ = ("_exchange", "_idle_bytes", "_interim", "_method", "_pairs", "_parser", "until_close")

    def __init__(self, exchange: Exchange, method: str) -> None:
        self.until_close = False
        self._exchange = exchange
        self._method = method
        self._parser = HttpResponseParser(self)
        self._pairs: list[tuple[str, str]] = []
        self._idle_bytes = 0
        self._interim = False

    def feed(self, data: bytes) -> None:
        """Read bytes."""
        exchange = self._exchange
        self._idle_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            exchange.fail("the server switched to another protocol, unasked")
        except HttpParserError as error:
            exchange.fail(f"the answer is not HTTP ({error})")
        if self._idle_bytes > _LONGEST_HEAD:  # a head, a trailer or the frame of a chunk that never ends
            exchange.fail(f"the head of the answer is longer than {_LONGEST_HEAD:,} bytes")

    def on_message_begin(self) -> None:
        if self._exchange.whole:
            self._exchange.give_up()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._pairs.append((name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")))
        if len(self._pairs) > _MOST_FIELDS:
            self._exchange.fail(f"the answer has more than {_MOST_FIELDS:,} header fields")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._interim, self._pairs = True, []
            return
        headers = Headers(tuple(self._pairs))
        chunked = "chunked" in (headers.get("transfer-encoding") or "").lower()
        self.until_close = not (chunked or "content-length" in headers)
        self._exchange.begin(status, headers)
        if self._method == "HEAD":
            self._exchange.finish(reusable=self._parser.should_keep_alive())

    def on_body(self, data: bytes) -> None:
        self._idle_bytes = 0
        if self._exchange.whole:
            self._exchange.give_up()
        elif self._interim:
            self._exchange.fail("the answer is not HTTP (an interim answer has a body)")
        else:
            self._exchange.add(data)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif not self._exchange.whole:
            self._exchange.finish(reusable=self._parser.should_keep_alive())


class _Inbox:
    """Pieces of a body that nobody has taken yet; one reader waits at a time, and one that is slow holds the line."""

    __slots__ = ("_ahead", "_held", "_line", "_waiter", "pieces")

    def __init__(self, line: Line) -> None:
        self.pieces: list[bytes] = []
        self._line = line
        self._ahead = 0
        self._held = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, data: bytes) -> None:
        """Keep a piece."""
        self.pieces.append(data)
        self._ahead += len(data)
        if self._ahead > _READ_AHEAD and not self._held:
            self._held = True
            self._line.hold()
        self.wake()

    def taken(self) -> bytes:
        """All that is there."""
        pieces, self.pieces, self._ahead = self.pieces, [], 0
        self.release()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def release(self) -> None:
        """Let the line go on."""
        if self._held:
            self._held = False
            self._line.go_on()

    async def news(self) -> None:
        """Wait until anything happens."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Something happened."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def head_of(outgoing: Outgoing) -> bytes:
    """The request line and the fields; a stream goes in chunks, because nobody knows how long it is."""
    lines = [f"{outgoing.method} {outgoing.path} HTTP/1.1\r\nHost: {outgoing.route.host}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in outgoing.headers]
    body = outgoing.body
    if isinstance(body, bytes):
        lines.append(f"Content-Length: {len(body)}\r\n")
    elif body is not None:
        lines.append("Transfer-Encoding: chunked\r\n")
    elif outgoing.method in _NEED_LENGTH:
        lines.append("Content-Length: 0\r\n")
    lines.append("\r\n")
    return "".join(lines).encode()


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
