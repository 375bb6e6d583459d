"""An open WebSocket, whoever shook hands for it: what is sent, what is handed out, and how it ends."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, NamedTuple

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolError
from toolpost.wire.outbox import Outbox
from toolpost.wire.websocket_frames import (
    BINARY,
    CLOSE,
    NORMAL,
    PING,
    TEXT,
    TOO_BIG,
    WrongFrameError,
    farewell_of,
)
from toolpost.wire.websocket_inbox import Inbox
from toolpost.wire.websocket_pulse import Pulse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import NoReturn

    from toolpost.wire.openings import Opening
    from toolpost.wire.websocket_frames import Take

GOODBYE_S = 1.0

_REASON = 300
_WELL = frozenset({0, NORMAL})  # RFC 6455 §7.4.1: a normal closure, and a close frame without a code
_UNPRINTABLE = re.compile(r"[^ -~\u00a1-\ud7ff]+")


class Ending(NamedTuple):
    """Why nothing more is read."""

    reason: str
    is_well: bool = False
    is_too_big: bool = False


class Connection:
    """A connection that is told what comes by `feed`, its end by `lost`, and whether it may write by the others."""

    __slots__ = (
        "_aborting",
        "_ending",
        "_inbox",
        "_leaving",
        "_let_go",
        "_loop",
        "_opening",
        "_outbox",
        "_parted",
        "_pulse",
        "_transport",
        "pause",
        "resume",
        "subprotocol",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        opening: Opening,
        let_go: Callable[[], Awaitable[None]],
        *,
        subprotocol: str | None,
        deflated: bool,
    ) -> None:
        self.subprotocol = subprotocol
        self._transport = transport
        self._opening = opening
        self._let_go = let_go
        self._loop = asyncio.get_running_loop()
        limit = opening.max_message_bytes
        self._inbox = Inbox(transport, self._control, self._refuse, limit=limit, deflated=deflated)
        self._outbox = Outbox(transport)
        self.pause, self.resume = self._outbox.pause, self._outbox.resume
        self._pulse = Pulse(opening.ping_s, self._ask, self._miss, self._outbox.is_taking)
        self._leaving = False
        self._ending: Ending | None = None
        self._parted = asyncio.Event()
        self._aborting: asyncio.TimerHandle | None = None

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._ending is not None or self._transport.is_closing()

    @property
    def ended_well(self) -> bool:
        """Whether the server has said that all is over and as it should be."""
        return self._ending is not None and self._ending.is_well

    def post(self, message: str) -> bool:
        """Send a short text without waiting; False when it has to be waited for."""
        if self._ending is not None or self._transport.is_closing():
            raise _unsent(self._opening, self._ending)
        return self._outbox.put(TEXT, message.encode())

    async def send(self, message: str | bytes) -> None:
        """Send a message; a long one waits until the server has taken enough of what was sent before it.

        All waiting is done before anything is written, each sender by itself: who gives up has sent nothing.
        """
        if self.closed:
            raise _unsent(self._opening, self._ending)
        opcode, data = (TEXT, message.encode()) if isinstance(message, str) else (BINARY, message)
        if self._outbox.put(opcode, data):
            return
        async with self._outbox.turn:
            await asyncio.sleep(0)  # whoever sends without end lets others in
            await self._outbox.room.wait()
            if self.closed:
                raise _unsent(self._opening, self._ending)
            self._outbox.write(opcode, data)

    async def receive(self) -> str | bytes:
        """The next message."""
        message = await self._inbox.next()
        if message is None:
            raise _failure(self._opening, self._ending)
        return message

    async def listen(self, take: Take) -> NoReturn:
        """Hand out every message as it comes."""
        await self._inbox.pour(take)
        raise _failure(self._opening, self._ending)

    async def close(self) -> None:
        """Say goodbye; a server that goes on talking is not listened to for long."""
        if not self._leaving and self._ending is None:
            self._leaving, self._ending = True, Ending("it was closed on this side")
            self._outbox.write(CLOSE, NORMAL.to_bytes(2, "big"))
            self._inbox.ignore()
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._parted.wait()
        except TimeoutError:
            pass  # it is let go all the same
        finally:
            self._transport.abort()  # also of one that is being closed: what the server does not take would hold it
            await self._let_go()

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        self._pulse.heard = self._loop.time()
        self._inbox.feed(bytes(data))  # on Windows it is a bytearray

    def lost(self) -> None:
        """There is no connection any more."""
        self._parted.set()
        self._end(Ending("it ended without a goodbye"))

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self._outbox.answer(payload)
        elif opcode == CLOSE:
            code, reason = farewell_of(payload)
            self._end(Ending(_farewell(code, reason), code in _WELL), payload[:2])

    def _refuse(self, wrong: WrongFrameError) -> None:
        ending = Ending(f"what came is no WebSocket message: {wrong}", is_too_big=wrong.code == TOO_BIG)
        self._end(ending, wrong.code.to_bytes(2, "big"))

    def _ask(self) -> None:
        if self._inbox.is_held:
            self._pulse.heard = self._loop.time()  # who is not listened to cannot be heard
        else:
            self._outbox.ask()

    def _miss(self, within_s: float) -> None:
        self._transport.abort()
        self._end(Ending(f"no PONG received after {within_s:g} s"))

    def _end(self, ending: Ending, answer: bytes | None = None) -> None:
        """Read no more; `answer` is what the close frame says that is still owed."""
        if answer is not None and not self._leaving:
            self._outbox.write(CLOSE, answer)
        self._ending = self._ending or ending
        self._pulse.stop()
        self._inbox.end()
        self._transport.close()
        self._outbox.resume()
        if self._aborting is not None:
            self._aborting.cancel()
        if not self._parted.is_set():  # a server that does not read could hold it for ever
            self._aborting = self._loop.call_later(GOODBYE_S, self._transport.abort)


def one_line(text: str) -> str:
    """The beginning of what a server says, as an error may tell it."""
    line = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return line if len(line) <= _REASON else f"{line[:_REASON]}…"  # which tells that it was cut, perhaps in a secret


def _farewell(code: int, reason: str) -> str:
    told = f"code {code}" if code else "no code"
    return f"{told}: {one_line(reason)}" if reason else told


def _unsent(opening: Opening, ending: Ending | None) -> ToolConnectionError:
    return ToolConnectionError(_closed(opening, ending), sent=False)


def _failure(opening: Opening, ending: Ending | None) -> ToolError:
    if ending is not None and ending.is_too_big:
        limit = f"larger than {opening.max_message_bytes:,} bytes"
        message = f"{opening.subject}: a message is {limit}; ask for less or raise max_message_bytes"
        return ToolClientError(message, code="response_too_large")
    return ToolConnectionError(_closed(opening, ending), sent=True)


def _closed(opening: Opening, ending: Ending | None) -> str:
    reason = "" if ending is None else f" ({ending.reason})"
    return f"{opening.subject}: the connection is closed{reason}"
