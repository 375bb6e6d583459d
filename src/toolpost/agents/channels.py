"""Channels of a main agent: its replies and their delivery."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakSet

from msgspec import Struct

from toolpost.contracts.errors import ToolClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

_MAX_REPLIES = 1000


class Reply(Struct, frozen=True, kw_only=True):
    """A message of a main agent on a channel; `reply_to` is the ID of the answered message, if any."""

    channel_id: str
    text: str
    reply_to: str | None = None


class ReplyStream:
    """Stream of an agent's replies on one channel or on all, until the agent stops."""

    def __init__(self, channel_id: str | None, earlier: Iterable[Reply]) -> None:
        self._channel_id = channel_id
        self._queue: asyncio.Queue[Reply | None] = asyncio.Queue()
        for reply in earlier:
            self.put(reply)

    def put(self, reply: Reply | None) -> None:
        """Add a reply; None ends the stream."""
        if reply is None or self._channel_id in (None, reply.channel_id):
            self._queue.put_nowait(reply)

    def __aiter__(self) -> ReplyStream:
        return self

    async def __anext__(self) -> Reply:
        reply = await self._queue.get()
        if reply is None:
            self._queue.put_nowait(None)  # for the next `anext`
            raise StopAsyncIteration
        return reply


class Channels:
    """Known channels, and the delivery of replies to a function and to streams.

    Undelivered replies are kept for the first stream.
    """

    def __init__(self, on_reply: Callable[[Reply], Awaitable[None] | None] | None) -> None:
        self.known: set[str] = set()
        self._on_reply = on_reply
        self._streams: WeakSet[ReplyStream] = WeakSet()  # an unread stream is garbage-collected
        self._backlog: deque[Reply] = deque(maxlen=_MAX_REPLIES)

    def stream(self, channel_id: str | None) -> ReplyStream:
        """Return a stream of undelivered and future replies."""
        earlier = list(self._backlog)
        self._backlog.clear()
        opened = ReplyStream(channel_id, earlier)
        self._streams.add(opened)
        return opened

    async def deliver(self, reply: Reply) -> None:
        """Deliver a reply; raise ToolClientError for an unknown channel, and any error of the receiver."""
        if reply.channel_id not in self.known:
            names = ", ".join(sorted(self.known)) or "none so far"
            message = f"unknown channel {reply.channel_id!r}; the channels are: {names}"
            raise ToolClientError(message, tool_name="reply", code="channel_unknown")
        if self._on_reply is not None:
            handled = self._on_reply(reply)
            if inspect.isawaitable(handled):
                await handled
        elif not self._streams:
            self._backlog.append(reply)
        for stream in self._streams:
            stream.put(reply)

    def close(self) -> None:
        for stream in self._streams:
            stream.put(None)
