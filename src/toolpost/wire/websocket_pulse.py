"""The pulse of a WebSocket: whether the other side is still there, asked when nothing has come for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE = 0.5  # how much of the time between two questions there is for an answer
_LATE = 1.2


class Pulse:
    """One timer, which is set again only when it fires; whoever hears something sets `heard` to the loop's time.

    `is_taking` tells whether the other side has taken something since it was asked: who is in the middle of a long
    message is there, and can answer only behind it.
    """

    __slots__ = ("_ask", "_asked", "_give_up", "_is_taking", "_loop", "_timer", "heard")

    def __init__(
        self,
        every_s: float | None,
        ask: Callable[[], object],
        give_up: Callable[[float], None],
        is_taking: Callable[[], bool],
    ) -> None:
        self._ask = ask
        self._give_up = give_up
        self._is_taking = is_taking
        self._loop = asyncio.get_running_loop()
        self._asked = 0.0
        self.heard = self._loop.time()
        self._timer = None if every_s is None else self._loop.call_later(every_s, self._feel, every_s)

    def stop(self) -> None:
        """Ask no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _feel(self, every_s: float) -> None:
        now, due = self._loop.time(), self.heard + every_s
        if now < due:
            self._timer = self._loop.call_at(due, self._feel, every_s)
        elif self._asked <= self.heard or self._is_taking():
            self._asked = now
            self._ask()
            self._timer = self._loop.call_later(every_s * _PATIENCE, self._feel, every_s)
        elif now > self._asked + every_s * _PATIENCE * _LATE:  # it was this process that slept
            self._asked = now
            self._timer = self._loop.call_later(every_s * _PATIENCE, self._feel, every_s)
        else:
            self._give_up(every_s * _PATIENCE)
