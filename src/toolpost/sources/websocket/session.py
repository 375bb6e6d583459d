"""One connection that many calls share, matched by the correlation ids of their messages."""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from toolpost.contracts.calls import NO_CREDENTIAL, ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolError, ToolOutputError, ToolTimeoutError
from toolpost.sources.websocket.messages import excerpt, json_value, result_of

if TYPE_CHECKING:
    from toolpost.contracts.calls import Credential
    from toolpost.sources.websocket.messages import Correlation
    from toolpost.sources.websocket.templates import Arguments, Build
    from toolpost.wire.aiohttp_websockets import WebSocket

_Waiting: TypeAlias = "tuple[asyncio.Future[Any], float]"  # for an answer, and until when

_NEVER = float("inf")
_LOOK = 400  # of what came for nobody
_log = logging.getLogger("toolpost.sources.websocket")


class _Stray(NamedTuple):
    """A message that belongs to no call, and the number of the last call that had begun by then."""

    what: str
    number: int
    head: str | bytes | None

    def told(self) -> str:
        """Describe the message for an error."""
        return self.what if self.head is None else f"{self.what}: {excerpt(self.head)}"


class WebSocketSession:
    """A connection with one reader, and the calls that wait for answers on it.

    An answer goes to the call with its id, once. Messages that belong to no call (late, repeated or unknown) are
    dropped, and the timeout errors of calls mention them. All calls share one timer.
    """

    def __init__(
        self, name: str, socket: WebSocket, correlation: Correlation, credential: Credential = NO_CREDENTIAL
    ) -> None:
        self._name = name
        self._socket = socket
        self._taken = correlation.taken
        self._presented = dict(credential.headers)
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int | None, _Waiting] = {}
        self._given_out = 0
        self._is_owed = False  # an answer for which nobody waits any more
        self._stray: _Stray | None = None
        self._ended: ToolError | None = None
        self._retired: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = _NEVER
        self._reader = self._loop.create_task(self._read())

    @property
    def is_closed(self) -> bool:
        """Whether the next call needs another connection."""
        return self._ended is not None or self._socket.closed

    @property
    def is_busy(self) -> bool:
        """Whether calls wait for answers."""
        return bool(self._waiting)

    def use_credential(self, credential: Credential) -> bool:
        """Whether a credential's headers are those of the handshake; others need a connection of their own."""
        return self._presented == credential.headers

    async def ask(self, build: Build, arguments: Arguments, timeout_s: float) -> ToolOutput:
        """Send a message and wait for the answer with its id."""
        loop = self._loop
        until = loop.time() + timeout_s
        self._given_out = number = self._given_out + 1
        text = build(arguments, number)
        if self._ended is not None:
            raise ToolConnectionError(self._ended.message, sent=False)
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting[number] = answer, until
        if until < self._armed_for:
            self._arm(until)
        try:
            try:
                await self._socket.send(text, deadline=until)
            except TimeoutError:
                raise self._unread() from None
            told = await answer
        except BaseException:
            self._waiting.pop(number, None)
            self._is_owed = True
            raise
        finally:
            if self._retired is not None and not self._waiting:
                self._retired.set()
        if isinstance(told, ToolError):
            raise told
        return ToolOutput(result_of(told))

    def _unread(self) -> ToolConnectionError:
        """Build the error of a message that could not be sent in time; it had no effect."""
        message = f"source {self._name!r} did not take the message in time: it does not read what was sent before"
        return ToolConnectionError(message, sent=False)

    async def close_when_idle(self) -> None:
        """Close the connection as soon as no call waits for an answer."""
        self._retired = asyncio.Event()
        if self._waiting and not self.is_closed:
            await self._retired.wait()
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls that wait for answers fail."""
        self._end(ToolConnectionError(f"source {self._name!r} was closed"))
        self._reader.cancel()
        if not self._reader.done():  # one that is done may belong to a loop that is closed
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()  # a reader that was cancelled before it began closes nothing

    async def _read(self) -> None:
        ended: ToolError = ToolConnectionError(f"source {self._name!r} is not listened to any more")
        try:
            await self._socket.listen(self._hand_out)
        except ToolError as failed:
            ended = failed
        finally:
            self._end(ended)
            await self._socket.close()

    def _hand_out(self, message: str | bytes) -> None:
        try:
            answer = json_value(message)
        except ToolOutputError:
            self._drop("a message that is not JSON", message)
            return
        number = self._taken(answer)
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            if not waiting[0].done():
                waiting[0].set_result(answer)
        elif number is None:
            self._drop("a message that answers no call", message)
        elif not 0 < number <= self._given_out:
            self._drop(f"an answer with the id {number}, which no call has", message)

    def _drop(self, what: str, message: str | bytes) -> None:
        """Note and log a message that belongs to no call."""
        # Only a call that waits alone sees how it begins, since it may be the answer to another call; no log does.
        is_alone = len(self._waiting) == 1 and not self._is_owed
        self._stray = _Stray(what, self._given_out, message[:_LOOK] if is_alone else None)
        _log.info("source %r: dropped %s", self._name, what)

    def _end(self, ended: ToolError) -> None:
        """Fail every waiting call, each with its own copy of the error; what was sent may have had its effect."""
        self._ended = self._ended or ended
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        if isinstance(ended, ToolClientError) and (len(waiting) > 1 or self._is_owed):
            reason = f"{ended.message}. It is not known for which call it was, so that all on its connection failed"
            ended = ToolConnectionError(reason)
        if isinstance(ended, ToolConnectionError):
            ended.incident = ended.incident or object()
        for answer, _ in waiting.values():
            _settle(answer, copy.copy(ended))

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = when
        self._timer = self._loop.call_at(when, self._give_up)

    def _give_up(self) -> None:
        """Fail the calls whose time is over; later answers to them are dropped."""
        now = self._loop.time()
        self._timer, self._armed_for = None, _NEVER
        for number in [number for number, (_, until) in self._waiting.items() if until <= now]:
            _settle(self._waiting.pop(number)[0], self._late(number))
            self._is_owed = True
        if self._waiting:
            self._arm(min(until for _, until in self._waiting.values()))

    def _late(self, number: int | None) -> ToolTimeoutError:
        stray = self._stray
        if stray is None or number is None or number > stray.number:
            return ToolTimeoutError(f"source {self._name!r} did not answer in time")
        return ToolTimeoutError(f"source {self._name!r} did not answer in time; it sent {stray.told()}")


def _settle(answer: asyncio.Future[Any], told: Any) -> None:
    if not answer.done():
        answer.set_result(told)
