"""What the SDK's session reads from and writes to: a server's pipes, or the older pair of SSE and POST."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

import anyio
import httpx2
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from toolpost.contracts.errors import ToolConnectionError
from toolpost.sources.mcp.framing import Lines, unbatched, unreadable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

_CHUNK = 256 * 1024


class _Stream:
    """What both ends have in common: they close with what they stand on, not by themselves."""

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Reader(_Stream):
    """Messages one by one; `ended` is called when no more can come."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._messages: deque[SessionMessage] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._messages:
            text = await self._next()
            if text is None:
                self._ended()
                raise StopAsyncIteration
            self._messages.extend(_parsed(text))
        return self._messages.popleft()

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def _next(self) -> str | bytes | None:
        raise NotImplementedError


def _parsed(text: str | bytes) -> list[SessionMessage]:
    """The message, or those of a batch; none in anything else that a careless server writes between its messages."""
    if not text.strip():
        return []
    try:
        return [SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))]
    except ValueError:
        raw = text if isinstance(text, bytes) else text.encode()
    if batch := unbatched(raw):
        return [message for one in batch for message in _parsed(one)]
    error = unreadable(raw)
    return [] if error is None else _parsed(error)


class PipeReader(_Reader):
    """Messages from a server's standard output."""

    def __init__(self, stdout: asyncio.StreamReader, *, limit: int, ended: Callable[[], None]) -> None:
        super().__init__(ended)
        self._stdout = stdout
        self._lines = Lines(limit)
        self._ready: deque[bytes] = deque()

    async def _next(self) -> bytes | None:
        while not self._ready:
            chunk = await self._stdout.read(_CHUNK)
            if not chunk:
                return None
            self._ready.extend(self._lines.feed(chunk))
        return self._ready.popleft()


class PipeWriter(_Stream):
    """Messages to a server's standard input."""

    def __init__(self, stdin: asyncio.StreamWriter, wrote: Callable[[], None]) -> None:
        self._stdin = stdin
        self._wrote = wrote

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        transport = self._stdin.transport
        waiting = transport.get_write_buffer_size()
        if transport.is_closing():
            raise ToolConnectionError("the MCP server's process is gone", sent=False)
        try:
            self._stdin.write(line.encode() + b"\n")
            if transport.is_closing() and not waiting:
                raise ToolConnectionError("the MCP server's process is gone", sent=False)
            self._wrote()
            await self._stdin.drain()
        except (OSError, RuntimeError):
            raise anyio.BrokenResourceError from None


class EventReader(_Reader):
    """Messages from a stream of server-sent events; the first one says where to post."""

    def __init__(self, response: httpx2.Response, *, limit: int, ended: Callable[[], None]) -> None:
        super().__init__(ended)
        self._events: AsyncIterator[Any] = aiter(httpx2.EventSource(response, max_event_size=limit))

    async def endpoint(self) -> str:
        """Where messages are to be posted, relative to the stream's own address."""
        async for event in self._events:
            if event.event == "endpoint":
                return str(event.data)
        raise httpx2.RemoteProtocolError("the event stream ended before it named an endpoint")

    async def _next(self) -> str | None:
        try:
            async for event in self._events:
                if event.event == "message":
                    return str(event.data)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.SSEError):
            return None
        return None


class Poster(_Stream):
    """Messages to a server that answers on its event stream."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url

    async def send(self, item: SessionMessage, /) -> None:
        body = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        headers = {"content-type": "application/json"}
        response = await self._client.post(self._url, content=body, headers=headers)
        response.raise_for_status()
