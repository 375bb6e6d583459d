"""Messages of a WebSocket on their way in: handed out as they come, or kept until somebody asks for them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from toolpost.wire.websocket_frames import Frames, WrongFrameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.wire.websocket_frames import Control, Take

_MOST = 128 * 1024  # what is kept before nothing more is read
_LEAST = _MOST // 2
_EACH = 128  # what a message takes, however short it is


class Inbox:
    """What one connection brings, for one reader; `refuse` is told of what is no message, once."""

    __slots__ = ("_frames", "_kept", "_over", "_refuse", "_size", "_transport", "_waiter")

    def __init__(
        self,
        transport: asyncio.Transport,
        control: Control,
        refuse: Callable[[WrongFrameError], None],
        *,
        limit: int,
        deflated: bool,
    ) -> None:
        self._transport = transport
        self._refuse = refuse
        self._frames = Frames(self._keep, control, limit=limit, deflated=deflated)
        self._kept: deque[str | bytes] = deque()
        self._size = 0
        self._over = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_held(self) -> bool:
        """Whether the other side is not listened to."""
        return self._frames.held

    def feed(self, data: bytes) -> None:
        """Take more bytes; however many frames a server sends at once, others have their turn between them."""
        if self._over:
            return
        try:
            if self._frames.feed(data):
                self._transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._read_on)
        except WrongFrameError as wrong:
            self._refuse(wrong)

    async def next(self) -> str | bytes | None:
        """The next message, as soon as there is one; None when there will be none."""
        while not self._kept:
            if self._over:
                return None
            await self._news()
        message = self._kept.popleft()
        self._size -= len(message) + _EACH
        if self._frames.held and self._size <= _LEAST:
            self._go_on()
        return message

    async def pour(self, take: Take) -> None:
        """Hand out every message as it comes, until there will be none."""
        while self._kept:
            take(self._kept.popleft())
        self._size, self._frames.take = 0, take
        self._go_on()
        try:
            while not self._over:
                await self._news()
        finally:
            self._frames.take = self._keep

    def ignore(self) -> None:
        """Keep nothing any more; control frames are still told."""
        self._kept.clear()
        self._frames.take = _drop
        self._go_on()

    def end(self) -> None:
        """There will be nothing more; what is kept can still be taken."""
        self._over = self._frames.held = True
        self._wake()

    def _keep(self, message: str | bytes) -> None:
        self._kept.append(message)
        self._size += len(message) + _EACH
        if self._size > _MOST:
            self._frames.held = True
            self._transport.pause_reading()
        self._wake()

    def _go_on(self) -> None:
        if not self._over and self._frames.held:
            self._frames.held = False
            self._read_on()

    def _read_on(self) -> None:
        if not self._over and not self._frames.held:
            self._transport.resume_reading()
            self.feed(b"")

    async def _news(self) -> None:
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _drop(_: str | bytes) -> None:
    """Nobody wants it."""
