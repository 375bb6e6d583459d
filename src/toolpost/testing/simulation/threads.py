"""The threads of stores without threads: the scheduler runs their generators, in an order that the seed chooses."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from toolpost.stores.threads import Block, Blocking, Listen, StoreThread, Take, Wait, Work
from toolpost.testing.simulation.loop import Scheduler

_SLOWEST_WAKE_S = 0.003


class Crash(BaseException):
    """Ends the work of a process that is killed while it works."""


class InlineThreads:
    """Runs the work of one process's stores; `before_commit` raises what the simulation injects.

    `crashed` is called when the work has raised Crash, or has done a part after `crash_soon` was set.
    """

    def __init__(self, scheduler: Scheduler, *, before_commit: Callable[[], None], crashed: Callable[[], None]) -> None:
        self.crash_soon = False
        self.stalled_until = 0.0
        self.crashed = crashed
        self._scheduler = scheduler
        self._before_commit = before_commit
        self._threads: list[InlineThread] = []

    def start(self, work: Work, *, name: str, stop: Callable[[], None]) -> StoreThread:
        thread = InlineThread(work, self._scheduler, self)
        self._threads.append(thread)
        self._scheduler.add(thread)
        return thread

    def before_commit(self) -> None:
        self._scheduler.commits += 1
        self._before_commit()

    def kill(self) -> None:
        """End all work immediately."""
        for thread in self._threads:
            thread.kill()


class InlineThread:
    """One generator that the scheduler runs between its blocking operations."""

    def __init__(self, work: Work, scheduler: Scheduler, owner: InlineThreads) -> None:
        self._work = work
        self._scheduler = scheduler
        self._owner = owner
        self._blocking: Blocking | None = None
        self._commits = 0  # those of all processes when it began to listen
        self._timeout_at = math.inf
        self._wakes_at = 0.0  # the time at which it runs, once it no longer blocks; infinity before
        self._is_running = False
        self._finished: list[asyncio.Future[None]] = []
        self.has_ended = False

    async def finished(self) -> None:
        if not self.has_ended:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._finished.append(future)
            await future

    def due(self, now: float) -> float:
        if self._wakes_at == math.inf and self._can_continue():
            self._wakes_at = now + self._scheduler.random.random() * _SLOWEST_WAKE_S
        return max(min(self._wakes_at, self._timeout_at), self._owner.stalled_until)

    def run_part(self) -> None:
        """Run until the next blocking operation."""
        blocking, item = self._blocking, None
        if isinstance(blocking, Take):
            item = blocking.queue.get_nowait()
        elif isinstance(blocking, Wait):
            item = blocking.event.is_set()
        self._is_running = True
        try:
            if isinstance(blocking, Block):
                item = blocking.function()
            elif isinstance(blocking, Listen):
                item = blocking.function(0.0)
            self._block(self._work.send(item))
        except StopIteration:
            self._end()
        except Crash:
            self._owner.crash_soon = True
        finally:
            self._is_running = False
        if self._owner.crash_soon:
            self._owner.crash_soon = False
            self._owner.crashed()

    def kill(self) -> None:
        """End the work; its connection is closed without a commit, as by the kernel."""
        self._end()
        if not self._is_running:
            self._work.close()

    def _can_continue(self) -> bool:
        blocking = self._blocking
        if isinstance(blocking, Take):
            return not blocking.queue.empty()
        if isinstance(blocking, Listen):
            return self._scheduler.commits > self._commits
        return not isinstance(blocking, Wait) or blocking.event.is_set()

    def _block(self, blocking: Blocking) -> None:
        self._blocking, self._wakes_at, self._commits = blocking, math.inf, self._scheduler.commits
        timeout_s = blocking.timeout_s if isinstance(blocking, Wait | Listen) else math.inf
        self._timeout_at = self._scheduler.now + timeout_s

    def _end(self) -> None:
        self.has_ended = True
        self._scheduler.remove(self)
        for future in self._finished:
            future.get_loop().call_soon(_set_done, future)


def _set_done(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
