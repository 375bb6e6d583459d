"""Channels of a main agent: where people write to it, and the only place where it speaks."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ToolClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

_MOST_KEPT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a main agent said on a channel; `reply_to` is the id of the message that it answers, if it says so."""

    channel_id: str
    text: str
    reply_to: str | None = None


class ReplyStream:
    """The replies of an agent as they come, of one channel or of all, until the agent stops."""

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
            self._queue.put_nowait(None)  # for whoever asks again
            raise StopAsyncIteration
        return reply


class Channels:
    """The channels that are known, and the delivery of replies to a function and to streams.

    Replies that nobody takes are kept for the first stream.
    """

    def __init__(self, on_reply: Callable[[Reply], Awaitable[None] | None] | None) -> None:
        self.known: set[str] = set()
        self._on_reply = on_reply
        self._streams: list[ReplyStream] = []
        self._kept: deque[Reply] = deque(maxlen=_MOST_KEPT)

    def stream(self, channel_id: str | None) -> ReplyStream:
        """Return a stream of the replies from now on, and of those that nobody has taken."""
        earlier = list(self._kept)
        self._kept.clear()
        opened = ReplyStream(channel_id, earlier)
        self._streams.append(opened)
        return opened

    async def deliver(self, reply: Reply) -> None:
        """Deliver a reply; ToolClientError when there is no such channel, and whatever the receiver raises."""
        if reply.channel_id not in self.known:
            known = ", ".join(sorted(self.known)) or "none so far"
            message = f"there is no channel {reply.channel_id!r}; there are: {known}"
            raise ToolClientError(message, tool_name="reply", code="channel_unknown")
        if self._on_reply is not None:
            handled = self._on_reply(reply)
            if inspect.isawaitable(handled):
                await handled
        elif not self._streams:
            self._kept.append(reply)
        for stream in self._streams:
            stream.put(reply)

    def close(self) -> None:
        """End every stream."""
        for stream in self._streams:
            stream.put(None)
