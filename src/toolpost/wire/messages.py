"""HTTP requests and responses, and how long and how large they may be."""

from __future__ import annotations

import asyncio
import math
import re
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Literal, Protocol, Self, TypeAlias
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from toolpost.contracts.errors import (
    ToolClientError,
    ToolConnectionError,
    ToolPermissionError,
    ToolTimeoutError,
    ToolValidationError,
)
from toolpost.wire.network import REFUSED, join_url, parse_target, split_url

Pairs: TypeAlias = tuple[tuple[str, str], ...]
HeaderInput: TypeAlias = Mapping[str, str] | Pairs
RequestBody: TypeAlias = bytes | AsyncIterable[bytes] | None

# RFC 9110 §7.6.1: these speak about one connection; the others here are the connection's own business too,
# and whoever could set them could make one request look like two, or be meant for another host.
MANAGED_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A tab is the only control character that a value may have; a lone surrogate cannot be encoded.
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")

REDIRECTS = frozenset({301, 302, 303, 307, 308})
Follow = Literal["safe", "all", "none"]

_SAFE_METHODS = frozenset({"GET", "HEAD"})
# Fields that any origin may read. All others, Authorization, Cookie and keys of every name, were meant for one origin.
_HARMLESS = frozenset({"accept", "accept-encoding", "accept-language", "cache-control", "range", "user-agent"})
# RFC 3986 §2 leaves these out; brackets are let through, for servers that read them in queries.
_NOT_IN_URL = re.compile(r"""[^!-~]|["<>^`{|}]""")


class Headers:
    """Header fields of a response, in order and with repetitions; names are matched in any case."""

    __slots__ = ("_first", "pairs")

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self._first = {name.lower(): value for name, value in reversed(pairs)}

    def get(self, name: str) -> str | None:
        """Return the first value of a field."""
        return self._first.get(name.lower())

    def get_all(self, name: str) -> tuple[str, ...]:
        """Return every value of a field, in order."""
        lowered = name.lower()
        return tuple(value for field, value in self.pairs if field.lower() == lowered)

    @property
    def media_type(self) -> str:
        """The type and subtype of the body in lower case, without parameters; empty when the server did not say."""
        return (self.get("content-type") or "").partition(";")[0].strip().lower()

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"Headers({[name for name, _ in self.pairs]})"  # values may be cookies and tokens


def clean_headers(headers: HeaderInput, *, defaults: Pairs = ()) -> Pairs:
    """Return the fields to send, followed by the defaults that they do not override.

    Raises a ToolValidationError that names the fields that may not be sent.
    """
    pairs: list[tuple[str, str]] = []
    issues: list[str] = []
    names: set[str] = set()
    for name, value in headers if isinstance(headers, tuple) else headers.items():
        lowered, issue = _read_name(name)
        if issue is None and _UNSENDABLE.search(value):
            issue = f"header {name!r} has a line break or another control character in its value"
        if issue is not None:
            issues.append(issue)
        names.add(lowered)
        pairs.append((name, value.strip(" \t")))
    if issues:
        raise ToolValidationError(issues)
    for pair in defaults:
        if _read_name(pair[0])[0] not in names:
            pairs.append(pair)  # noqa: PERF401 - on the way of every request
    return tuple(pairs)


def check_method(method: str) -> str:
    """Return the method in upper case; raise ToolValidationError when it may not be sent."""
    if method in _METHODS:
        return method
    if not _TOKEN.fullmatch(method) or method.upper() == "CONNECT":  # a tunnel is no request
        raise ToolValidationError(f"{method[:40]!r} is not a method that can be sent")
    return method.upper()


@lru_cache(maxsize=1024)
def _read_name(name: str) -> tuple[str, str | None]:
    """Return a field name in lower case, and what is wrong with it."""
    lowered = name.lower()
    if not _TOKEN.fullmatch(name):
        return lowered, f"{name[:80]!r} is not the name of a header"
    if lowered in MANAGED_HEADERS:
        return lowered, f"header {name!r} belongs to the connection and cannot be set"
    return lowered, None


class Request(Struct, frozen=True):
    """One request; the client's defaults apply to fields that are None.

    `follow` selects the redirects to follow: those of GET and HEAD, those of every method, or none. `max_bytes`
    limits the response's body after decompression; `timeout_s` covers everything, redirects and body included.
    """

    method: str
    url: str
    headers: HeaderInput = ()
    body: RequestBody = None
    timeout_s: float | None = None
    max_bytes: int | None = None
    follow: Follow = "safe"

    def __repr__(self) -> str:
        return f"Request({self.method!r})"  # a path or a query may hold a key

    @property
    def subject(self) -> str:
        """Name the request in errors: method and origin, because a path or a query may hold a key."""
        return f"{self.method} {split_url(self.url)[0]}"

    @property
    def header_pairs(self) -> Pairs:
        """The header fields as pairs."""
        return self.headers if isinstance(self.headers, tuple) else tuple(self.headers.items())


def request_path(url: str) -> str:
    """Return the path and query of a URL for the request line, in ASCII and without the fragment."""
    path = split_url(url)[1]
    if "#" in path:
        path = path.partition("#")[0]
    if not path.startswith("/"):
        path = f"/{path}"
    if _NOT_IN_URL.search(path) is None:
        return path
    return _NOT_IN_URL.sub(lambda match: quote(match[0]), path)


def redirect_request(request: Request, status: int, headers: Headers) -> Request | None:
    """Build the request that a redirect asks for; None when the redirect is not to be followed.

    A body is sent again only to the origin that already had it.
    """
    if status not in REDIRECTS or not (location := headers.get("location")) or not _is_followed(request):
        return None
    url = join_url(request.url, location)
    source, target = parse_target(request.url), parse_target(url)
    if (source.scheme, target.scheme) == ("https", "http"):
        raise ToolPermissionError(f"it leads to {target.host!r} without TLS", code=REFUSED)
    method, pairs, body = _redirect_method(request.method, status), request.header_pairs, request.body
    if method != request.method:
        pairs, body = tuple(pair for pair in pairs if not pair[0].lower().startswith("content-")), None
    if (source.scheme, source.authority) != (target.scheme, target.authority):
        if body is not None:
            return None
        pairs = tuple(pair for pair in pairs if pair[0].lower() in _HARMLESS)
    return replace(request, method=method, url=url, headers=pairs, body=body)


def _is_followed(request: Request) -> bool:
    if request.follow == "all":
        return isinstance(request.body, bytes | None)  # a stream is gone once it was sent
    return request.follow == "safe" and request.method in _SAFE_METHODS


def _redirect_method(method: str, status: int) -> str:
    """RFC 9110 §15.4: 307 and 308 keep the method; the older codes turn a POST into a GET, and 303 everything."""
    if status in {307, 308} or method in _SAFE_METHODS:
        return method
    return "GET" if status == 303 or method == "POST" else method


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
        """The media type of the body, as `Headers.media_type`."""
        return self.headers.media_type

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

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def parse_retry_after(headers: Headers, *, now: float | None = None) -> float | None:
    """Parse the seconds to wait from Retry-After (RFC 9110 section 10.2.3) or the fields that APIs use instead."""
    now = time.time() if now is None else now
    if (retry_after := headers.get("retry-after")) is not None:
        return _seconds(retry_after, now) if _SECONDS.fullmatch(retry_after.strip()) else _until_date(retry_after, now)
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


_NEVER = float("inf")


class Deadlines:
    """Deadlines of many tasks on one loop timer, at half the cost of `asyncio.timeout`.

    The timer is armed for the earliest deadline only.
    """

    def __init__(self) -> None:
        self._entered: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = _NEVER

    def until(self, when: float) -> Deadline:
        """Return a context manager that raises TimeoutError when the loop's time is `when`."""
        return Deadline(self, when)

    def enter(self, deadline: Deadline) -> None:
        """Interrupt the deadline's task when its time comes."""
        self._entered.add(deadline)
        if deadline.when < self._armed_for:
            self._arm(deadline.when)

    def leave(self, deadline: Deadline) -> None:
        """Leave the deadline's task alone from now on."""
        self._entered.discard(deadline)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = when
        self._timer = asyncio.get_running_loop().call_at(when, self._check)

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        self._timer, self._armed_for = None, _NEVER
        for deadline in [deadline for deadline in self._entered if deadline.when <= now]:
            self._entered.discard(deadline)
            deadline.expire()
        if self._entered:
            self._arm(min(deadline.when for deadline in self._entered))


class Deadline:
    """Context manager that interrupts the current task at a time of the loop."""

    __slots__ = ("_cancelling", "_deadlines", "_late", "_task", "when")

    def __init__(self, deadlines: Deadlines, when: float) -> None:
        self.when = when
        self._deadlines = deadlines
        self._late = False
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    def expire(self) -> None:
        """Cancel the task; leaving the context turns that into a TimeoutError."""
        self._late = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        self._deadlines.enter(self)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._deadlines.leave(self)
        if not self._late or self._task is None:
            return
        # Another caller may have cancelled the task too; then the CancelledError stays.
        if self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error


class ResponseStream(Protocol):
    """A response as the transport receives it: its head, and its body in chunks."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def headers(self) -> Headers:
        """The header fields."""
        ...

    def take(self) -> bytes | None:
        """Return the whole body if it has arrived."""
        ...

    async def chunk(self) -> bytes:
        """Return the next bytes of the body; none at its end."""
        ...

    async def close(self) -> None:
        """Drop the rest of the body."""
        ...


class ResponseBody:
    """Read the body of one response, decompressed, within a size limit and a deadline.

    `limit` counts bytes before and after decompression, so that a body that decompresses to nothing ends too.
    """

    __slots__ = ("_deadline", "_deadlines", "_exchange", "_limit", "_request", "_size")

    def __init__(
        self, exchange: ResponseStream, request: Request, *, limit: int, deadline: float, deadlines: Deadlines
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
                return self._decode(whole)
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
            for piece in self._count(decoder, chunk):
                yield piece
            if received > self._limit + _PIECE:
                raise self._too_large()
        if decoder and received and not decoder.complete:
            raise ToolConnectionError(f"{self._request.subject}: the compressed answer ended too early")

    def _decode(self, whole: bytes) -> bytes:
        decoder = self._open()
        if decoder is None and len(whole) <= self._limit:
            return whole
        content = b"".join(self._count(decoder, whole))
        if decoder and whole and not decoder.complete:
            raise ToolConnectionError(f"{self._request.subject}: the compressed answer ended too early")
        return content

    def _count(self, decoder: Inflater | None, chunk: bytes) -> Iterator[bytes]:
        for piece in decoder.feed(chunk) if decoder else (chunk,):
            self._size += len(piece)
            if self._size > self._limit:
                raise self._too_large()
            yield piece

    def _open(self) -> Inflater | None:
        """Return the decoder for the content encoding; raise when the declared length is over the limit."""
        headers = self._exchange.headers
        declared = headers.get("content-length")
        encoding = headers.get("content-encoding")
        if self._request.method == "HEAD" or self._exchange.status in _NO_BODY:  # whatever the headers promise
            return None
        if declared and declared.isdecimal() and int(declared) > self._limit:
            raise self._too_large()
        return body_decoder(encoding.lower(), self._request.subject) if encoding else None

    def _too_large(self) -> ToolClientError:
        message = (
            f"{self._request.subject}: the answer is larger than {self._limit:,} bytes; ask for less or raise the limit"
        )
        return ToolClientError(message, code="response_too_large")

    def _late(self) -> ToolTimeoutError:
        return ToolTimeoutError(f"{self._request.subject}: the answer did not arrive whole before the deadline")


def body_decoder(encoding: str, subject: str) -> Inflater | None:
    """Return the decoder of a content encoding; None for one that changes nothing."""
    encodings = [name for part in encoding.split(",") if (name := part.strip()) not in {"", "identity"}]
    if not encodings:
        return None
    if encodings in (["gzip"], ["x-gzip"], ["deflate"]):
        return Inflater(encodings[0], subject)
    message = f"{subject}: the answer is encoded as {', '.join(encodings)!r}; only {ACCEPTED_ENCODINGS} can be read"
    raise ToolClientError(message, code="unknown_encoding")


class Inflater:
    """Decompress in pieces of bounded size, so that the caller can stop between two."""

    def __init__(self, encoding: str, subject: str) -> None:
        self._subject = subject
        self._deflate = encoding == "deflate"
        self._engine: Any = None
        self._first_byte = b""  # one byte that does not yet tell what begins with it
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
                data, self._first_byte = self._first_byte + chunk[start : start + _SLICE], b""
                yield from self._inflate(data)
        except zlib.error as broken:
            message = f"{self._subject}: the answer cannot be decompressed ({broken})"
            raise ToolClientError(message, code="unreadable_response") from broken

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        while data and not self._over:
            if self._engine is None or self._engine.eof:
                if len(data) < 2:
                    self._first_byte = data
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
