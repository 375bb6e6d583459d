"""Exchange of one message on a dedicated connection, for one response or a stream of responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolError, ToolTimeoutError
from toolpost.sources.websocket.correlation import Correlation, Path, path_of, result_of, value_at
from toolpost.sources.websocket.messages import beginning, codec, json_text, listed
from toolpost.sources.websocket.options import WebSocketTool
from toolpost.wire.messages import Deadlines
from toolpost.wire.websockets import WebSocket

Decode = Callable[[str | bytes], Any]
Report = Callable[[str], None]
Connect = Callable[[], Awaitable[WebSocket]]

_MAX_CLOSING = 64
UNRELATED: Final = object()
_PREVIEW_CHARS = 500
ONLY = 1  # the id of the only message on a connection


class DedicatedExchange:
    """Exchange of one message and its answers on a dedicated connection."""

    def __init__(
        self, form: Literal["json", "text", "bytes"], correlation: Correlation | None, closing: ClosingConnections
    ) -> None:
        self._encode, self._decode_any = codec(form)
        self._correlation = correlation
        self._closing = closing
        self._deadlines = Deadlines()

    async def request(self, connect: Connect, message: str, *, within_s: float) -> Any:
        """Send a message and return its first answer."""
        sent = self._encode(message)
        deadline = asyncio.get_running_loop().time() + within_s
        await self._closing.room()
        socket = await connect()
        try:
            with self._deadlines.until(deadline):
                await socket.send(sent)
                return result_of(self._decode_any(await socket.receive()))
        except TimeoutError:
            raise ToolTimeoutError(f"no answer within {within_s:g} s", timeout_ms=within_s * 1000) from None
        finally:
            self._closing.begin(socket)

    async def collect(
        self, connect: Connect, message: str, *, limits: StreamLimits, report: Report, within_s: float
    ) -> Any:
        """Send a message and return all answers until a limit, as a list."""
        sent = self._encode(message)
        deadline = asyncio.get_running_loop().time() + within_s
        await self._closing.room()
        socket = await connect()
        stream = AnswerStream(socket, limits, self._decode, report)
        try:
            with self._deadlines.until(deadline):
                await socket.send(sent)
                return await stream.collect()
        except TimeoutError:
            text = (
                f"the stream did not end within {within_s:g} s; {stream.came}. To end it automatically, set max_seconds"
            )
            raise ToolTimeoutError(text, timeout_ms=within_s * 1000) from None
        finally:
            self._closing.begin(socket)

    def _decode(self, message: str | bytes) -> Any:
        """Decode an answer; answers with another id are unrelated."""
        answer = self._decode_any(message)
        if self._correlation is None or self._correlation.taken(answer) == ONLY:
            return answer
        return UNRELATED


class AnswerStream:
    """The answers on one connection; messages that `decode` maps to UNRELATED are dropped."""

    def __init__(self, socket: WebSocket, limits: StreamLimits, decode: Decode, report: Report) -> None:
        self._socket = socket
        self._limits = limits
        self._decode = decode
        self._report = report
        self._size = 0
        self._dropped = 0
        self.answers: list[Any] = []

    async def collect(self) -> list[Any]:
        """Collect all answers until the end; an error contains the number of earlier answers."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                while not await self._took_last():
                    pass
        except TimeoutError:
            pass  # a limit, not a failure
        except ToolError as failed:
            if not self._socket.ended_well or not isinstance(failed, ToolConnectionError):
                failed.message = f"{failed.message}; {self.came}"
                raise
        return self.answers

    @property
    def came(self) -> str:
        """Describe the number of answers and of dropped messages."""
        count = len(self.answers)
        dropped = f", and {self._dropped} without its id (dropped)" if self._dropped else ""
        return f"{count} answer{'' if count == 1 else 's'} arrived before{dropped}"

    async def _took_last(self) -> bool:
        message = await self._socket.receive()
        answer = self._decode(message)
        if answer is UNRELATED:
            self._dropped += 1
            return False
        self._size += len(message)
        if self._size > self._limits.size:
            text = f"the stream is larger than {self._limits.size:,} bytes; lower max_messages or raise the limit"
            raise ToolClientError(text, code="response_too_large")
        value = listed(result_of(answer))
        self.answers.append(value)
        self._report(beginning(value if isinstance(value, str) else json_text(value), _PREVIEW_CHARS))
        ended = self._limits.last is not None and value_at(answer, self._limits.last) is True
        return ended or len(self.answers) >= self._limits.messages


class StreamLimits(NamedTuple):
    """The limits that end a stream, besides a clean close."""

    messages: int
    seconds: float | None
    size: int
    last: Path | None

    @classmethod
    def of(cls, tool: WebSocketTool, size: int) -> StreamLimits:
        """Read the limits of a tool; all answers together may be as large as one message."""
        last = None if tool.last_field is None else path_of(tool.last_field)
        return cls(tool.max_messages, tool.max_seconds, size, last)


class ClosingConnections:
    """The connections of one source that are closing; closing the source waits for them."""

    def __init__(self) -> None:
        self._closing: set[asyncio.Task[None]] = set()

    def begin(self, socket: WebSocket) -> None:
        closing = asyncio.create_task(socket.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def room(self) -> None:
        """Wait while too many connections are closing; slow servers must not use up all sockets."""
        while len(self._closing) >= _MAX_CLOSING:
            await asyncio.wait(self._closing, return_when=asyncio.FIRST_COMPLETED)

    async def finished(self) -> None:
        """Wait until every connection is closed."""
        await asyncio.gather(*self._closing, return_exceptions=True)
