"""Streams: answers that are told as they come, and collected until a limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolError
from toolpost.sources.websocket.answers import result_of
from toolpost.sources.websocket.correlation import path_of, value_at
from toolpost.sources.websocket.messages import beginning, json_text, listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.options import WebSocketTool
    from toolpost.sources.websocket.correlation import Path
    from toolpost.wire.aiohttp_websockets import WebSocket

    Decode = Callable[[str | bytes], Any]
    Tell = Callable[[str], None]

NOBODYS: Final = object()
_TOLD = 500


class Limits(NamedTuple):
    """Where a stream ends, besides with a clean close."""

    messages: int
    seconds: float | None
    size: int
    last: Path | None

    @classmethod
    def of(cls, tool: WebSocketTool, size: int) -> Limits:
        """As an operator says; all that is collected may not be larger than one message."""
        last = None if tool.last_field is None else path_of(tool.last_field)
        return cls(tool.max_messages, tool.max_seconds, size, last)


class Stream:
    """The answers on one connection; what `decode` finds to be NOBODYS is dropped."""

    def __init__(self, socket: WebSocket, limits: Limits, decode: Decode, tell: Tell) -> None:
        self._socket = socket
        self._limits = limits
        self._decode = decode
        self._tell = tell
        self._size = 0
        self._dropped = 0
        self.answers: list[Any] = []

    async def collect(self) -> list[Any]:
        """All answers until the end; a failure says how many came before it."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                while not await self._took_last():
                    pass
        except TimeoutError:
            pass  # a limit, and no failure
        except ToolError as failed:
            if not self._socket.ended_well or not isinstance(failed, ToolConnectionError):
                failed.message = f"{failed.message}; {self.came}"
                raise
        return self.answers

    @property
    def came(self) -> str:
        """How many answers there are, and how much came besides."""
        count = len(self.answers)
        dropped = f", and {self._dropped} without its id, which were dropped" if self._dropped else ""
        return f"{count} answer{'' if count == 1 else 's'} had come before{dropped}"

    async def _took_last(self) -> bool:
        message = await self._socket.receive()
        answer = self._decode(message)
        if answer is NOBODYS:
            self._dropped += 1
            return False
        self._size += len(message)
        if self._size > self._limits.size:
            text = f"the stream is larger than {self._limits.size:,} bytes; lower max_messages or raise the limit"
            raise ToolClientError(text, code="response_too_large")
        value = listed(result_of(answer))
        self.answers.append(value)
        self._tell(beginning(value if isinstance(value, str) else json_text(value), _TOLD))
        ended = self._limits.last is not None and value_at(answer, self._limits.last) is True
        return ended or len(self.answers) >= self._limits.messages
