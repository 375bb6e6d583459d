"""Limits in time: deadlines that share one loop timer, and a rate limit."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_NEVER = float("inf")
_BURST = 20
_PER_SECOND = 10.0


class Deadlines:
    """Deadlines of many tasks on one loop timer, at half the cost of `asyncio.timeout`.

    The timer is armed for the earliest deadline only.
    """

    def __init__(self) -> None:
        self._entered: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = _NEVER

    def until(self, when: float) -> Deadline:
        """Return a context manager that raises TimeoutError when the loop's time is `when`."""
        return Deadline(self, when)

    def enter(self, deadline: Deadline) -> None:
        """Interrupt the deadline's task when its time comes."""
        self._entered.add(deadline)
        if deadline.when < self._armed_for:
            self._arm(deadline.when)

    def leave(self, deadline: Deadline) -> None:
        """Leave the deadline's task alone from now on."""
        self._entered.discard(deadline)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = when
        self._timer = asyncio.get_running_loop().call_at(when, self._check)

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        self._timer, self._armed_for = None, _NEVER
        for deadline in [deadline for deadline in self._entered if deadline.when <= now]:
            self._entered.discard(deadline)
            deadline.expire()
        if self._entered:
            self._arm(min(deadline.when for deadline in self._entered))


class Deadline:
    """Context manager that interrupts the current task at a time of the loop."""

    __slots__ = ("_cancelling", "_deadlines", "_late", "_task", "when")

    def __init__(self, deadlines: Deadlines, when: float) -> None:
        self.when = when
        self._deadlines = deadlines
        self._late = False
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    def expire(self) -> None:
        """Cancel the task; leaving the context turns that into a TimeoutError."""
        self._late = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        self._deadlines.enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.leave(self)
        if not self._late or self._task is None:
            return
        # Another caller may have cancelled the task too; then the CancelledError stays.
        if self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error


class RateLimit:
    """Token bucket for the progress events of one call: 20 at once, then 10 a second."""

    __slots__ = ("_allowed", "_since", "dropped")

    def __init__(self) -> None:
        self.dropped = 0
        self._allowed = float(_BURST)
        self._since = time.monotonic()

    def allows(self) -> bool:
        """Take one token if there is one; otherwise count one more in `dropped` and return False."""
        now = time.monotonic()
        self._allowed = min(float(_BURST), self._allowed + (now - self._since) * _PER_SECOND)
        self._since = now
        if self._allowed < 1:
            self.dropped += 1
            return False
        self._allowed -= 1
        return True
