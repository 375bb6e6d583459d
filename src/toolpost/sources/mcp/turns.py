"""Calls in flight on sessions of the older protocol, where a server asks its question in the middle of a call.

Such a server cannot be sent away and called again: its request stays open until a
person has answered. The call is held here meanwhile, outside any deadline of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolConnectionError
from toolpost.sources.mcp.elicitation import ELICIT, replies, rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from toolpost.contracts.calls import AuthorizedCall, RequestedCall
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import Answer

CANCELLED: dict[str, Any] = {"action": "cancel"}
GHOST_S = 900.0  # for as long a server may still ask about a call that was given up


class Turn:
    """One call in flight: it ends with a result, or is held while a question of the server is open."""

    def __init__(
        self, call: AuthorizedCall, asking: Coroutine[Any, Any, dict[str, Any]], *, ended: Callable[[Turn], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.request: RequestedCall = call.request
        self._known = [answer for answer in rounds(call.request.answers) if "params" in answer.state]
        self._ended = ended
        self._news: asyncio.Future[dict[str, Any] | None] = loop.create_future()
        self._reply: asyncio.Future[dict[str, Any]] | None = None
        self._task = loop.create_task(asking)
        self._task.add_done_callback(self._finished)

    @property
    def held(self) -> bool:
        """Whether a question of the server is open."""
        return self._reply is not None

    @property
    def gave_up(self) -> bool:
        """Whether it ended because we no longer wanted it."""
        return self._task.cancelled()

    @property
    def over(self) -> bool:
        """Whether the call has ended."""
        return self._task.done()

    async def next(self) -> dict[str, Any] | None:
        """The server's next question; None when the call is through. Whoever stops waiting stops the call."""
        try:
            news = await self._news
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if news is not None:
            self._news = asyncio.get_running_loop().create_future()
        return news

    async def result(self) -> dict[str, Any]:
        """What the server answered."""
        if self._task.cancelled():
            raise ToolConnectionError("the session was closed while the call was under way")
        return await self._task

    def _finished(self, task: asyncio.Task[dict[str, Any]]) -> None:
        self._ended(self)
        if not self._news.done():
            self._news.set_result(None)
        if not task.cancelled():
            task.exception()  # seen, should nobody come back for it

    async def ask(self, params: dict[str, Any], *, hold_s: float) -> dict[str, Any]:
        """Pass a question on and wait for its reply; the very question that was answered before is answered again."""
        if known := next((answer for answer in self._known if answer.state["params"] == params), None):
            self._known.remove(known)
            return self._in_reply(params, known)
        self._reply = asyncio.get_running_loop().create_future()
        if not self._news.done():
            self._news.set_result(params)
        try:
            async with asyncio.timeout(hold_s):
                return await self._reply
        except TimeoutError:
            return CANCELLED
        finally:
            self._reply = None

    def answer(self, params: dict[str, Any], answer: Answer) -> None:
        """Give the open question its answer."""
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(self._in_reply(params, answer))

    @staticmethod
    def _in_reply(params: dict[str, Any], answer: Answer) -> dict[str, Any]:
        return replies({"": {"method": ELICIT, "params": params}}, answer)[""]

    def stop(self) -> None:
        """Give the call up; the server is told."""
        self._task.cancel()

    async def stopped(self) -> None:
        """Give the call up and wait until that is done."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Turns:
    """Whatever is in flight on one session, and for whom."""

    def __init__(self) -> None:
        self._open: dict[str, Turn] = {}
        self._others: Counter[Principal] = Counter()
        self._ghosts: list[tuple[float, Principal]] = []

    def __bool__(self) -> bool:
        return bool(self._open or self._others)

    def begin(self, call: AuthorizedCall, asking: Coroutine[Any, Any, dict[str, Any]]) -> Turn:
        """Send a call out."""
        turn = self._open[call.request.call_id] = Turn(call, asking, ended=self._end)
        return turn

    def _end(self, turn: Turn) -> None:
        """A call is through; one that we gave up may still live on in the server and ask."""
        if self._open.get(turn.request.call_id) is turn:
            del self._open[turn.request.call_id]
        if turn.gave_up:
            self._ghosts.append((time.monotonic() + GHOST_S, turn.request.principal))

    @contextmanager
    def beside(self, principal: Principal) -> Generator[None]:
        """While something that cannot pause is asked for somebody."""
        self._others[principal] += 1
        try:
            yield
        except asyncio.CancelledError:
            self._ghosts.append((time.monotonic() + GHOST_S, principal))
            raise
        finally:
            self._others[principal] -= 1
            self._others += Counter()  # drops those that are at zero

    def held(self, call_id: str) -> Turn | None:
        """The call that waits for a person, if it does."""
        turn = self._open.get(call_id)
        return turn if turn is not None and turn.held else None

    def asker(self) -> Turn | None:
        """The call that a question of the server belongs to.

        The older protocol does not say. Among calls of one person the oldest is taken;
        if another's might be meant nobody is asked, lest one answers for another.
        """
        free = [turn for turn in self._open.values() if not (turn.held or turn.over)]
        self._ghosts = [ghost for ghost in self._ghosts if ghost[0] > time.monotonic()]
        people = {turn.request.principal for turn in free}
        people.update(self._others, (principal for _, principal in self._ghosts))
        return free[0] if free and len(people) == 1 else None

    def release(self, call_id: str) -> None:
        """Nobody will answer any more: give the call up."""
        if (turn := self._open.get(call_id)) is not None:
            turn.stop()

    async def stop(self) -> None:
        """Give every call up."""
        await asyncio.gather(*(turn.stopped() for turn in list(self._open.values())))
