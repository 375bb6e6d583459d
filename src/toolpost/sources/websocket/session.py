"""Session on one WebSocket connection that all calls with a credential share."""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import Any, NamedTuple, TypeAlias

from toolpost.contracts.calls import NO_CREDENTIAL, Credential, ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolError, ToolOutputError, ToolTimeoutError
from toolpost.sources.websocket.correlation import Correlation, result_of
from toolpost.sources.websocket.messages import excerpt, json_value
from toolpost.sources.websocket.templates import Arguments, Build
from toolpost.wire.websockets import WebSocket

_Waiting: TypeAlias = "tuple[asyncio.Future[Any], float]"  # the future of an answer, and its deadline
_NEVER = float("inf")
_LOOK = 400  # characters of an unrelated message
_log = logging.getLogger("toolpost.sources.websocket")


class WebSocketSession:
    """A connection with one reader, and the calls that wait for answers on it.

    An answer goes to the call with its id, once. Messages that do not belong to a call (late, repeated or unknown) are
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
        self._last_number = 0
        self._is_owed = False  # an answer that the caller has given up
        self._stray: _Stray | None = None
        self._ended: ToolError | None = None
        self._retired: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = _NEVER
        self._reader = self._loop.create_task(self._read())

    @property
    def is_closed(self) -> bool:
        return self._ended is not None or self._socket.closed

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def use_credential(self, credential: Credential) -> bool:
        """Return whether a credential has the headers of the handshake; others need another connection."""
        return self._presented == credential.headers

    async def request(self, build: Build, arguments: Arguments, timeout_s: float) -> ToolOutput:
        """Send a message and wait for the answer with its id."""
        loop = self._loop
        until = loop.time() + timeout_s
        self._last_number = number = self._last_number + 1
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
                # It had no effect: it was not read.
                text = f"source {self._name!r} did not read the message in time: earlier messages are still unread"
                raise ToolConnectionError(text, sent=False) from None
            result = await answer
        except BaseException:
            self._waiting.pop(number, None)
            self._is_owed = True
            raise
        finally:
            if self._retired is not None and not self._waiting:
                self._retired.set()
        if isinstance(result, ToolError):
            raise result
        return ToolOutput(result_of(result))

    async def close_when_idle(self) -> None:
        self._retired = asyncio.Event()
        if self._waiting and not self.is_closed:
            await self._retired.wait()
        await self.close()

    async def close(self) -> None:
        self._end(ToolConnectionError(f"source {self._name!r} was closed"))
        self._reader.cancel()
        if not self._reader.done():  # a task that is done may belong to a closed loop
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()  # a reader that was canceled before it started closes nothing

    async def _read(self) -> None:
        ended: ToolError = ToolConnectionError(f"source {self._name!r} is no longer read")
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
        elif not 0 < number <= self._last_number:
            self._drop(f"an answer with the unknown id {number}", message)

    def _drop(self, what: str, message: str | bytes) -> None:
        """Log a message that does not belong to a call."""
        # Only a call that waits alone sees its beginning, because it may be the answer to another call; logs never do.
        is_alone = len(self._waiting) == 1 and not self._is_owed
        self._stray = _Stray(what, self._last_number, message[:_LOOK] if is_alone else None)
        _log.info("source %r: dropped %s", self._name, what)

    def _end(self, ended: ToolError) -> None:
        """Fail every waiting call, each with its own copy of the error; sent messages may have taken effect."""
        self._ended = self._ended or ended
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        if isinstance(ended, ToolClientError) and (len(waiting) > 1 or self._is_owed):
            reason = f"{ended.message}. Its call is unknown, so all calls on the connection failed"
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
        """Fail the calls that have timed out; later answers to them are dropped."""
        now = self._loop.time()
        self._timer, self._armed_for = None, _NEVER
        for number in [number for number, (_, until) in self._waiting.items() if until <= now]:
            text = f"source {self._name!r} did not answer in time"
            if (stray := self._stray) is not None and number is not None and number <= stray.number:
                text += f"; it sent {stray.describe()}"
            _settle(self._waiting.pop(number)[0], ToolTimeoutError(text))
            self._is_owed = True
        if self._waiting:
            self._arm(min(until for _, until in self._waiting.values()))


class _Stray(NamedTuple):
    """A message that does not belong to a call, and the number of the last call started before it."""

    what: str
    number: int
    head: str | bytes | None

    def describe(self) -> str:
        return self.what if self.head is None else f"{self.what}: {excerpt(self.head)}"


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)
