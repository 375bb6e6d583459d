"""Calls in flight on sessions of the older protocol, where a server asks its question in the middle of a call.

Such a server cannot be sent away and called again: its request stays open until a
person has answered. The call is held here meanwhile, outside any deadline of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolConnectionError
from toolpost.sources.mcp.asking import ELICIT, replies, rounds

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from toolpost.contracts.calls import AuthorizedCall, RequestedCall
    from toolpost.contracts.questions import Answer

CANCELLED: dict[str, Any] = {"action": "cancel"}


class Turn:
    """One call in flight: it ends with a result, or is held while a question of the server is open."""

    def __init__(self, call: AuthorizedCall, asking: Coroutine[Any, Any, dict[str, Any]]) -> None:
        loop = asyncio.get_running_loop()
        self.request: RequestedCall = call.request
        self._known = rounds(call.request.answers)
        self._asked = 0
        self._news: asyncio.Future[dict[str, Any] | None] = loop.create_future()
        self._reply: asyncio.Future[dict[str, Any]] | None = None
        self._task = loop.create_task(asking)
        self._task.add_done_callback(self._finished)

    @property
    def held(self) -> bool:
        """Whether a question of the server is open."""
        return self._reply is not None

    @property
    def number(self) -> int:
        """How many questions the server has asked."""
        return self._asked

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
        if not self._news.done():
            self._news.set_result(None)
        if not task.cancelled():
            task.exception()  # seen, should nobody come back for it

    async def ask(self, params: dict[str, Any], *, hold_s: float) -> dict[str, Any]:
        """Pass a question on and wait for its reply; one that was answered before is answered again."""
        self._asked += 1
        if self._asked <= len(self._known):
            return self._in_reply(params, self._known[self._asked - 1])
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

    async def stop(self) -> None:
        """Give the call up."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Turns:
    """The calls in flight on one session."""

    def __init__(self) -> None:
        self._open: dict[str, Turn] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(self, turn: Turn) -> None:
        """A call went out."""
        self._open[turn.request.call_id] = turn

    def end(self, turn: Turn) -> None:
        """A call is through."""
        self._open.pop(turn.request.call_id, None)

    def held(self, call_id: str) -> Turn | None:
        """The call that waits for a person, if it does."""
        turn = self._open.get(call_id)
        return turn if turn is not None and turn.held else None

    def asker(self) -> Turn | None:
        """The call that a question of the server belongs to.

        The older protocol does not say. Among calls of one person the oldest is taken;
        among those of several nobody is asked, lest one answers for another.
        """
        free = [turn for turn in self._open.values() if not turn.held]
        people = {turn.request.principal for turn in free}
        return free[0] if len(people) == 1 else None

    async def stop(self) -> None:
        """Give every call up."""
        turns = list(self._open.values())
        self._open.clear()
        await asyncio.gather(*(turn.stop() for turn in turns))
