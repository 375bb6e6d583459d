"""The body of an answer: decompressed, within its limit and its deadline."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolTimeoutError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from toolpost.wire.deadlines import Deadlines
    from toolpost.wire.steps import Step
    from toolpost.wire.transports import Incoming

ACCEPTED_ENCODINGS = "gzip, deflate"

_PIECE = 64 * 1024
_SLICE = 4 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 16 + zlib.MAX_WBITS
_RAW = -zlib.MAX_WBITS


class Body:
    """Reads a body once.

    `limit` counts what comes out of decompression, and what goes in as well: a body that never turns into
    anything ends too. Nothing is `expected` after a HEAD, whatever the headers promise.
    """

    __slots__ = ("_deadline", "_deadlines", "_expected", "_given", "_incoming", "_limit", "_step")

    def __init__(
        self, incoming: Incoming, step: Step, *, limit: int, deadline: float, deadlines: Deadlines, expected: bool
    ) -> None:
        self._incoming = incoming
        self._step = step
        self._limit = limit
        self._deadline = deadline
        self._deadlines = deadlines
        self._expected = expected
        self._given = 0

    async def read(self) -> bytes:
        """All of it."""
        try:
            whole = self._incoming.take()
            if whole is not None:
                return self._decoded(whole)
            with self._deadlines.until(self._deadline):
                return b"".join([piece async for piece in self._pieces()])
        except TimeoutError:
            await self._incoming.close()
            raise self._late() from None
        except BaseException:
            await self._incoming.close()
            raise

    async def stream(self) -> AsyncGenerator[bytes]:
        """Piece by piece."""
        pieces = self._pieces()
        try:
            while True:
                with self._deadlines.until(self._deadline):
                    piece = await anext(pieces, None)
                if piece is None:
                    return
                yield piece
        except TimeoutError:
            raise self._late() from None
        finally:
            await pieces.aclose()
            await self._incoming.close()

    async def _pieces(self) -> AsyncGenerator[bytes]:
        decoder = self._open()
        received = 0
        while chunk := await self._incoming.chunk():
            received += len(chunk)
            for piece in self._counted(decoder, chunk):
                yield piece
            if received > self._limit + _PIECE:
                raise self._too_large()
        if decoder and received and not decoder.complete:
            raise ToolConnectionError(f"{self._step.subject}: the compressed answer ended too early")

    def _decoded(self, whole: bytes) -> bytes:
        decoder = self._open()
        if decoder is None and len(whole) <= self._limit:
            return whole
        content = b"".join(self._counted(decoder, whole))
        if decoder and whole and not decoder.complete:
            raise ToolConnectionError(f"{self._step.subject}: the compressed answer ended too early")
        return content

    def _counted(self, decoder: _Inflater | None, chunk: bytes) -> Iterator[bytes]:
        for piece in decoder.feed(chunk) if decoder else (chunk,):
            self._given += len(piece)
            if self._given > self._limit:
                raise self._too_large()
            yield piece

    def _open(self) -> _Inflater | None:
        """The decoder that the headers ask for, once they promise no more than the limit."""
        headers = self._incoming.headers
        declared = headers.get("content-length")
        written = headers.get("content-encoding")
        if not self._expected:
            return None
        if declared and declared.isdecimal() and int(declared) > self._limit:
            raise self._too_large()
        return _decoder(written.lower(), self._step.subject) if written else None

    def _too_large(self) -> ToolClientError:
        message = (
            f"{self._step.subject}: the answer is larger than {self._limit:,} bytes; ask for less or raise the limit"
        )
        return ToolClientError(message, code="response_too_large")

    def _late(self) -> ToolTimeoutError:
        return ToolTimeoutError(f"{self._step.subject}: the answer did not arrive whole before the deadline")


def _decoder(written: str, subject: str) -> _Inflater | None:
    encodings = [name for part in written.split(",") if (name := part.strip()) not in {"", "identity"}]
    if not encodings:
        return None
    if encodings in (["gzip"], ["x-gzip"], ["deflate"]):
        return _Inflater(encodings[0], subject)
    message = f"{subject}: the answer is encoded as {', '.join(encodings)!r}; only {ACCEPTED_ENCODINGS} can be read"
    raise ToolClientError(message, code="unknown_encoding")


class _Inflater:
    """Decompresses in pieces of bounded size, so that whoever takes them can stop between two."""

    def __init__(self, encoding: str, subject: str) -> None:
        self._subject = subject
        self._deflate = encoding == "deflate"
        self._engine: Any = None
        self._held = b""  # one byte that does not yet tell what begins with it
        self._over = False

    @property
    def complete(self) -> bool:
        """Whether the compressed data came to its own end."""
        return self._engine is not None and self._engine.eof

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """What a chunk decompresses to."""
        try:
            # zlib copies what it leaves over: in small slices, many members or a high ratio cost no time.
            for start in range(0, len(chunk), _SLICE):
                data, self._held = self._held + chunk[start : start + _SLICE], b""
                yield from self._inflate(data)
        except zlib.error as broken:
            message = f"{self._subject}: the answer cannot be decompressed ({broken})"
            raise ToolClientError(message, code="unreadable_response") from broken

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        while data and not self._over:
            if self._engine is None or self._engine.eof:
                if len(data) < 2:
                    self._held = data
                    return
                self._begin(data)
                continue
            piece: bytes = self._engine.decompress(data, _PIECE)
            data = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail
            if not data and len(piece) == _PIECE:  # the data is used up, but not all of it has come out
                piece += self._engine.decompress(b"")
            if piece:
                yield piece

    def _begin(self, data: bytes) -> None:
        if self._engine is None and self._deflate:
            self._engine = zlib.decompressobj(zlib.MAX_WBITS if _has_zlib_header(data) else _RAW)
        elif self._engine is None or (not self._deflate and data.startswith(_GZIP_MAGIC)):
            self._engine = zlib.decompressobj(_GZIP)  # RFC 1952 §2.2: members may follow one another
        else:
            self._over = True  # anything else after the end is padding


def _has_zlib_header(data: bytes) -> bool:
    """RFC 1950 §2.2; some servers send RFC 1951 data under the same name."""
    return data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
