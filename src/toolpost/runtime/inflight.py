"""The calls that run now: their deadlines and their cancellation, on one loop timer for all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolpost.runtime.attempt import Attempt

_NAG_S = 1.0  # a tool that swallowed the cancellation is told again after this long
_STRANGER = (
    "this Toolbox was opened in another event loop, and its connections live there: open one in this loop, or hand "
    "the call over with asyncio.run_coroutine_threadsafe(box.call(...), loop)"
)
_OVER = "this Toolbox is closed: its `async with` is over; make the call within it, or open a new one"
_NOWHERE = object()


class InFlight:
    """All running calls of one Toolbox. A timer is armed only for the earliest deadline.

    Calls are made in the loop that holds the connections, where `home` says which that is; after `close`, nowhere.
    """

    def __init__(self) -> None:
        self.home: object | None = None
        self._flights: dict[str, Attempt] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = float("inf")

    def __len__(self) -> int:
        return len(self._flights)

    def enter(self, attempt: Attempt, timeout_s: float) -> None:
        """Begin to watch the calling task on behalf of a call."""
        loop = asyncio.get_running_loop()
        if self.home is not None and loop is not self.home:
            self.check_home()
        attempt.task = task = asyncio.current_task(loop)
        attempt.cancelling = 0 if task is None else task.cancelling()
        attempt.timeout_s = timeout_s
        attempt.deadline = deadline = loop.time() + timeout_s
        self._flights[attempt.request.call_id] = attempt
        if deadline < self._armed_for:
            self._arm(loop, deadline)

    def move_deadline(self, attempt: Attempt, timeout_s: float) -> None:
        """Give a call that has begun the time that its tool has, counted from its beginning."""
        attempt.deadline += timeout_s - attempt.timeout_s
        attempt.timeout_s = timeout_s
        if attempt.deadline < self._armed_for:
            self._arm(asyncio.get_running_loop(), attempt.deadline)

    def check_home(self) -> None:
        """RuntimeError when calls cannot be made in this loop, or not any more."""
        if self.home is _NOWHERE:
            raise RuntimeError(_OVER)
        if self.home not in (None, asyncio.get_running_loop()):
            raise RuntimeError(_STRANGER)

    def close(self) -> None:
        """Let nothing in any more."""
        self.home = _NOWHERE

    def leave(self, attempt: Attempt) -> None:
        """Stop watching; the timer is left to find out by itself."""
        self._flights.pop(attempt.request.call_id, None)

    def cancel(self, target_id: str, *, tenant: str | None = None, before: float = float("inf")) -> int:
        """Cancel a call, or every call of a run that began before a time; says how many there were."""
        self.check_home()  # a task belongs to its loop
        found = [a for a in self._flights.values() if target_id in (a.call.call_id, a.call.run_id)]
        mine = [a for a in found if tenant in (None, a.call.tenant) and a.began_at <= before]
        for attempt in mine:
            attempt.stop("cancelled")
        return len(mine)

    def ids(self) -> list[str]:
        """The ids under which running calls can be cancelled."""
        return [an_id for a in self._flights.values() for an_id in (a.call.call_id, a.call.run_id)]

    async def stop_all(self, *, patience_s: float = 5.0) -> None:
        """Stop every call but the one that asks for it, and wait until they have told their ends."""
        loop, me = asyncio.get_running_loop(), asyncio.current_task()
        until = loop.time() + patience_s
        others = [attempt for attempt in self._flights.values() if attempt.task is not me]
        for attempt in others:
            attempt.stop("cancelled")
        while loop.time() < until and any(a.request.call_id in self._flights for a in others):  # noqa: ASYNC110 - see below
            await asyncio.sleep(0.005)  # the tasks are their callers' and go on, so they cannot be waited for

    def _arm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = when
        self._timer = loop.call_at(when, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._timer, self._armed_for = None, float("inf")
        for attempt in list(self._flights.values()):
            if attempt.deadline <= now:
                attempt.stop("timeout")
                attempt.deadline = now + _NAG_S
        if self._flights:
            self._arm(loop, min(attempt.deadline for attempt in self._flights.values()))
