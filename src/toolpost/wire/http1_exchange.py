"""One request of HTTP/1.1 and its answer, as it comes in piece by piece."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from toolpost.contracts.errors import ToolConnectionError
from toolpost.wire.headers import Headers

if TYPE_CHECKING:
    from toolpost.contracts.errors import ToolError
    from toolpost.wire.transports import Outgoing

_LONGEST_HEAD = 256 * 1024
_MOST_FIELDS = 1000
_READ_AHEAD = 256 * 1024
_NEED_LENGTH = frozenset({"POST", "PUT", "PATCH"})


class Line(Protocol):
    """The connection under an exchange."""

    def done(self, exchange: Exchange, *, reusable: bool) -> None:
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
        "_ahead",
        "_failure",
        "_head_bytes",
        "_held",
        "_interim",
        "_line",
        "_outgoing",
        "_over",
        "_pairs",
        "_parser",
        "_pieces",
        "_until_close",
        "_waiter",
        "headed",
        "headers",
        "sent_all",
        "status",
    )

    def __init__(self, outgoing: Outgoing, line: Line) -> None:
        self.status = 0
        self.headers = Headers(())
        self.headed = False
        self.sent_all = False
        self._outgoing = outgoing
        self._line = line
        self._parser = HttpResponseParser(self)
        self._pairs: list[tuple[str, str]] = []
        self._pieces: list[bytes] = []
        self._ahead = 0
        self._head_bytes = 0
        self._held = False
        self._interim = False
        self._until_close = False
        self._over = False
        self._failure: ToolError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"Exchange({self.status})"

    @property
    def whole(self) -> bool:
        """Whether the answer came to its end."""
        return self._over

    # What was asked for.

    async def head(self) -> None:
        """Wait until status and fields are there."""
        while not self.headed:
            if self._failure is not None:
                raise self._failure
            await self._news()

    def take(self) -> bytes | None:
        return self._taken() if self._over else None

    async def chunk(self) -> bytes:
        while not self._pieces:
            if self._over:
                return b""
            if self._failure is not None:
                raise self._failure
            await self._news()
        return self._taken()

    async def close(self) -> None:
        if not self._over:
            self._line.abort()

    # What the connection tells.

    def feed(self, data: bytes) -> None:
        """Bytes came."""
        if not self.headed:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail("the server switched to another protocol, unasked")
        except HttpParserError as error:
            self._fail(f"the answer is not HTTP ({error})")
        if not self.headed and self._head_bytes > _LONGEST_HEAD:
            self._fail(f"the head of the answer is longer than {_LONGEST_HEAD:,} bytes")

    def lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        if self._over:
            return
        if self._until_close and error is None:
            self._finish(reusable=False)
            return
        self._fail(f"the connection broke ({_reason(error)})" if error else "the connection ended too early")

    # What the parser tells; the names are its own.

    def on_message_begin(self) -> None:
        if self._over:  # more than was asked for
            self._line.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._pairs.append((name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")))
        if len(self._pairs) > _MOST_FIELDS:
            self._fail(f"the answer has more than {_MOST_FIELDS:,} header fields")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._failure is not None:
            return
        if 100 <= status < 200:
            self._interim, self._pairs = True, []
            return
        self.status, self.headers = status, Headers(tuple(self._pairs))
        self.headed = True
        self._until_close = not ("content-length" in self.headers or "transfer-encoding" in self.headers)
        if self._outgoing.method == "HEAD":
            self._finish(reusable=self._parser.should_keep_alive())
        self._wake()

    def on_body(self, data: bytes) -> None:
        if self._over:
            self._line.abort()
            return
        self._pieces.append(data)
        self._ahead += len(data)
        if self._ahead > _READ_AHEAD and not self._held:
            self._held = True
            self._line.hold()
        self._wake()

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif not self._over:
            self._finish(reusable=self._parser.should_keep_alive())

    def _finish(self, *, reusable: bool) -> None:
        self._over = True
        self._line.done(self, reusable=reusable and self.sent_all)
        self._wake()

    def _fail(self, reason: str) -> None:
        if self._failure is None and not self._over:
            # Whatever was written may have been read and acted upon.
            self._failure = ToolConnectionError(f"{self._outgoing.subject}: {reason}", sent=True)
            self._line.abort()
            self._wake()

    def _taken(self) -> bytes:
        pieces, self._pieces, self._ahead = self._pieces, [], 0
        if self._held:
            self._held = False
            self._line.go_on()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _news(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
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
