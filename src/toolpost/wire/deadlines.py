"""The deadlines of everything that one client has under way, on one loop timer: half the price of `asyncio.timeout`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_NEVER = float("inf")


class Deadlines:
    """All that is watched; a timer is armed only for the earliest deadline, and finds out by itself what is over."""

    def __init__(self) -> None:
        self._watched: set[Watch] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = _NEVER

    def until(self, when: float) -> Watch:
        """A context that ends in a TimeoutError at this time of the loop."""
        return Watch(self, when)

    def enter(self, watch: Watch) -> None:
        """Begin to watch."""
        self._watched.add(watch)
        if watch.when < self._armed_for:
            self._arm(watch.when)

    def leave(self, watch: Watch) -> None:
        """Stop watching."""
        self._watched.discard(watch)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = when
        self._timer = asyncio.get_running_loop().call_at(when, self._check)

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        self._timer, self._armed_for = None, _NEVER
        for watch in [watch for watch in self._watched if watch.when <= now]:
            self._watched.discard(watch)
            watch.expire()
        if self._watched:
            self._arm(min(watch.when for watch in self._watched))


class Watch:
    """One task's wait for one thing."""

    __slots__ = ("_cancelling", "_deadlines", "_late", "_task", "when")

    def __init__(self, deadlines: Deadlines, when: float) -> None:
        self.when = when
        self._deadlines = deadlines
        self._late = False
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    def expire(self) -> None:
        """Interrupt the task."""
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
        # Somebody else may have cancelled the task too; that is then theirs to hear of.
        if self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error
