"""HTTP responses: the head, and the body decompressed within its size limit and its deadline."""

from __future__ import annotations

import asyncio
import math
import re
import time
import zlib
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Self

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolTimeoutError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from types import TracebackType

    from toolpost.wire.http1 import Exchange
    from toolpost.wire.limits import Deadlines
    from toolpost.wire.requests import Headers, Request

ACCEPTED_ENCODINGS = "gzip, deflate"

_NO_BODY = frozenset({204, 304})

_PIECE = 64 * 1024
_SLICE = 4 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 16 + zlib.MAX_WBITS
_RAW = -zlib.MAX_WBITS
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_NUMBER = re.compile(r"\d{1,13}(?:\.\d{1,9})?")
_EPOCH = 1e9  # a larger number of seconds is a date
_EPOCH_MS = 1e12


class Response:
    """Status and header fields of a response, and its body once `read` returned.

    Read, stream or close every response: an open one holds a connection. `is_cut` says that a stream went on when
    its time or its size limit was up, and `body` is what came before.
    """

    __slots__ = ("_is_read", "_reader", "body", "headers", "is_cut", "status", "url")

    def __init__(
        self, status: int, headers: Headers, body: bytes = b"", *, url: str = "", reader: ResponseBody | None = None
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.url = url  # of the last request, after all redirects
        self.is_cut = False
        self._reader = reader
        self._is_read = reader is None

    def __repr__(self) -> str:
        return f"Response({self.status})"

    @property
    def media_type(self) -> str:
        """The type and subtype of the body in lower case, without parameters; empty when the server did not say."""
        return (self.headers.get("content-type") or "").partition(";")[0].strip().lower()

    async def read(self) -> bytes:
        """Read the whole body within the limit; later calls return the same bytes."""
        if self._reader is not None and not self._is_read:
            self.body = await self._reader.read()
            self._is_read = True
        return self.body

    def stream(self, *, share_of_time: float = 1.0) -> AsyncGenerator[bytes]:
        """Iterate over the body within the limit and a share of the time that is left; only once."""
        if self._reader is None:
            raise RuntimeError("a response without a connection has no stream")
        return self._reader.stream(share_of_time)

    async def close(self) -> None:
        """Give the connection back, or close it when some of the body was not read."""
        if self._reader is not None:
            await self._reader.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def parse_retry_after(headers: Headers, *, now: float | None = None) -> float | None:
    """Parse the seconds to wait from Retry-After (RFC 9110 section 10.2.3) or the fields that APIs use instead."""
    now = time.time() if now is None else now
    if (asked := headers.get("retry-after")) is not None:
        return _seconds(asked, now) if _SECONDS.fullmatch(asked.strip()) else _until_date(asked, now)
    if (millis := headers.get("retry-after-ms")) is not None and _SECONDS.fullmatch(millis.strip()):
        return float(millis) / 1000
    if (headers.get("x-ratelimit-remaining") or headers.get("ratelimit-remaining")) != "0":
        return None
    reset = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset") or ""
    return _seconds(reset, now) if _NUMBER.fullmatch(reset.strip()) else None


def _seconds(text: str, now: float) -> float:
    value = float(text)
    if value > _EPOCH_MS:
        value /= 1000
    return max(0.0, value - now) if value > _EPOCH else value


def _until_date(text: str, now: float) -> float | None:
    try:
        wait = parsedate_to_datetime(text).timestamp() - now
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, wait) if math.isfinite(wait) else None


class ResponseBody:
    """Read the body of one response, decompressed, within a size limit and a deadline.

    `limit` counts bytes before and after decompression, so that a body that decompresses to nothing ends too.
    """

    __slots__ = ("_deadline", "_deadlines", "_exchange", "_limit", "_request", "_size")

    def __init__(
        self, exchange: Exchange, request: Request, *, limit: int, deadline: float, deadlines: Deadlines
    ) -> None:
        self._exchange = exchange
        self._request = request
        self._limit = limit
        self._deadline = deadline
        self._deadlines = deadlines
        self._size = 0

    async def read(self) -> bytes:
        """Read the whole body."""
        try:
            whole = self._exchange.take()
            if whole is not None:
                return self._decoded(whole)
            with self._deadlines.until(self._deadline):
                return b"".join([piece async for piece in self._pieces()])
        except TimeoutError:
            await self._exchange.close()
            raise self._late() from None
        except BaseException:
            await self._exchange.close()
            raise

    def stream(self, share_of_time: float) -> AsyncGenerator[bytes]:
        """Iterate over the body within a share of the time that is left."""
        now = asyncio.get_running_loop().time()
        self._deadline = now + (self._deadline - now) * share_of_time
        return self._stream()

    async def close(self) -> None:
        """Give the connection back, or close it when some of the body was not read."""
        await self._exchange.close()

    async def _stream(self) -> AsyncGenerator[bytes]:
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
            await self._exchange.close()

    async def _pieces(self) -> AsyncGenerator[bytes]:
        decoder = self._open()
        received = 0
        while chunk := await self._exchange.chunk():
            received += len(chunk)
            for piece in self._counted(decoder, chunk):
                yield piece
            if received > self._limit + _PIECE:
                raise self._too_large()
        if decoder and received and not decoder.complete:
            raise ToolConnectionError(f"{self._request.subject}: the compressed answer ended too early")

    def _decoded(self, whole: bytes) -> bytes:
        decoder = self._open()
        if decoder is None and len(whole) <= self._limit:
            return whole
        content = b"".join(self._counted(decoder, whole))
        if decoder and whole and not decoder.complete:
            raise ToolConnectionError(f"{self._request.subject}: the compressed answer ended too early")
        return content

    def _counted(self, decoder: _Inflater | None, chunk: bytes) -> Iterator[bytes]:
        for piece in decoder.feed(chunk) if decoder else (chunk,):
            self._size += len(piece)
            if self._size > self._limit:
                raise self._too_large()
            yield piece

    def _open(self) -> _Inflater | None:
        """Return the decoder for the content encoding; raise when the declared length is over the limit."""
        headers = self._exchange.headers
        declared = headers.get("content-length")
        written = headers.get("content-encoding")
        if self._request.method == "HEAD" or self._exchange.status in _NO_BODY:  # whatever the headers promise
            return None
        if declared and declared.isdecimal() and int(declared) > self._limit:
            raise self._too_large()
        return _decoder(written.lower(), self._request.subject) if written else None

    def _too_large(self) -> ToolClientError:
        message = (
            f"{self._request.subject}: the answer is larger than {self._limit:,} bytes; ask for less or raise the limit"
        )
        return ToolClientError(message, code="response_too_large")

    def _late(self) -> ToolTimeoutError:
        return ToolTimeoutError(f"{self._request.subject}: the answer did not arrive whole before the deadline")


def _decoder(written: str, subject: str) -> _Inflater | None:
    encodings = [name for part in written.split(",") if (name := part.strip()) not in {"", "identity"}]
    if not encodings:
        return None
    if encodings in (["gzip"], ["x-gzip"], ["deflate"]):
        return _Inflater(encodings[0], subject)
    message = f"{subject}: the answer is encoded as {', '.join(encodings)!r}; only {ACCEPTED_ENCODINGS} can be read"
    raise ToolClientError(message, code="unknown_encoding")


class _Inflater:
    """Decompress in pieces of bounded size, so that the caller can stop between two."""

    def __init__(self, encoding: str, subject: str) -> None:
        self._subject = subject
        self._deflate = encoding == "deflate"
        self._engine: Any = None
        self._held = b""  # one byte that does not yet tell what begins with it
        self._over = False

    @property
    def complete(self) -> bool:
        """Whether the compressed data reached its end marker."""
        return self._engine is not None and self._engine.eof

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Decompress a chunk."""
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
