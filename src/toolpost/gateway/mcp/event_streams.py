"""Streams of events (SSE) to MCP clients, which a client of a session can resume after its connection was lost."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import to_jsonable_python

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.types import Receive, Send

_ENCODER = json.JSONEncoder(separators=(",", ":"), default=to_jsonable_python)
_OK = 200
_PING_S = 15.0  # proxies close connections that are idle for longer
_PING = b": ping\r\n\r\n"
_RETRY_MS = 1000  # until a client reconnects
_MOST_EVENTS, _MOST_BYTES = 100, 8_000_000  # of a session; the newest event may be larger
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]


class EventResponse:
    """An HTTP response that is a stream of events; several tasks may send concurrently."""

    def __init__(self, send: Send, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = [*_HEADERS, *headers]
        self._turn = asyncio.Lock()
        self._pinging: asyncio.Task[None] | None = None
        self.is_over = asyncio.Event()

    async def start(self, events: Sequence[bytes]) -> None:
        """Send the head and the first events."""
        async with self._turn:
            await self._send({"type": "http.response.start", "status": _OK, "headers": self._headers})
            for event in events:
                await self._send({"type": "http.response.body", "body": event, "more_body": True})
        self._pinging = asyncio.get_running_loop().create_task(self._ping())

    async def send(self, event: bytes) -> None:
        """Send an event, unless the stream has ended."""
        async with self._turn:
            if not self.is_over.is_set():
                await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def end(self, event: bytes = b"") -> None:
        """End the stream with an event, if one is given."""
        async with self._turn:
            if self.is_over.is_set():
                return
            self.is_over.set()
            if self._pinging is not None:
                self._pinging.cancel()
            await self._send({"type": "http.response.body", "body": event})

    async def until_over(self, receive: Receive) -> None:
        """Wait until the stream ends or the client disconnects."""
        loop = asyncio.get_running_loop()
        waiting = (loop.create_task(self.is_over.wait()), loop.create_task(until_gone(receive)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(_PING_S)
            await self.send(_PING)


async def until_gone(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


class MessageStream:
    """The messages of one request, or of a session outside of its requests.

    With `recent`, events are stored: a client that has lost its connection opens another one and gets the missed
    events.
    """

    def __init__(self, recent: RecentEvents | None = None) -> None:
        self._recent = recent
        self._response: EventResponse | None = None
        self.is_complete = False

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._response is not None

    async def open(
        self,
        send: Send,
        headers: Sequence[tuple[bytes, bytes]] = (),
        *,
        primed: bool = False,
        missed: Sequence[bytes] = (),
    ) -> EventResponse:
        """Send events over this connection from now on, instead of an earlier one; first those that were `missed`.

        With `primed`, an event without data precedes later ones, so that the client can resume before there is one.
        """
        earlier, response = self._response, EventResponse(send, headers)
        self._response = response  # later events wait for their turn
        first = [self._recent.prime(self)] if primed and self._recent is not None else []
        await response.start([*missed, *first])
        if earlier is not None:
            await earlier.end()
        if self.is_complete:
            await response.end()
        return response

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message, or store it for a client that reconnects."""
        event = self._encode(message)
        if self._response is not None:
            await self._response.send(event)

    async def ping(self) -> None:
        """Show that the connection is alive."""
        if self._response is not None:
            await self._response.send(_PING)

    async def complete(self, message: Mapping[str, Any]) -> None:
        """Send the last message."""
        event, self.is_complete = self._encode(message), True
        await self.close(event)

    async def close(self, event: bytes = b"") -> None:
        """End the connection, if there is one; a client that reconnects gets later messages."""
        response, self._response = self._response, None
        if response is not None:
            await response.end(event)

    async def abandon(self, response: EventResponse) -> None:
        """Store later messages, because the client has left this connection."""
        if self._response is response:
            self._response = None
        await response.end()

    def _encode(self, message: Mapping[str, Any]) -> bytes:
        event = b"event: message\r\ndata: %b\r\n\r\n" % encode(message)
        return event if self._recent is None else self._recent.store(self, event)


class _Event(NamedTuple):
    number: int
    stream: MessageStream
    text: bytes


class RecentEvents:
    """The last events of one session, for a client that reconnects with the ID of its last event.

    The streams of a session share the numbers of events, so that a number also names the stream.
    """

    def __init__(self) -> None:
        self._events: deque[_Event] = deque()
        self._bytes = 0
        self._numbers = count(1)

    def prime(self, stream: MessageStream) -> bytes:
        """Store an event without data and return it."""
        return self.store(stream, b"retry: %d\r\ndata: \r\n\r\n" % _RETRY_MS)

    def store(self, stream: MessageStream, event: bytes) -> bytes:
        """Store an event of a stream and return it with its ID."""
        number = next(self._numbers)
        text = b"id: %d\r\n%b" % (number, event)
        self._events.append(_Event(number, stream, text))
        self._bytes += len(text)
        while len(self._events) > _MOST_EVENTS or (self._bytes > _MOST_BYTES and len(self._events) > 1):
            self._bytes -= len(self._events.popleft().text)
        return text

    def after(self, event_id: str) -> tuple[MessageStream, list[bytes]] | None:
        """Return the stream of an event and the later events of it; None if the event was dropped."""
        last = next((event for event in self._events if str(event.number) == event_id), None)
        if last is None:
            return None
        later = [event.text for event in self._events if event.stream is last.stream and event.number > last.number]
        return last.stream, later


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as JSON; results of tools may contain dates and the like."""
    return _ENCODER.encode(message).encode()


def notification(method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a notification as on the wire."""
    return {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}


def server_request(number: int, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a request to a client as on the wire."""
    return {"id": number, **notification(method, params)}
