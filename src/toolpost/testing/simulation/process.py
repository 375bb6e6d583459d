"""A simulated process: an event loop with a Toolbox on a shared store, which can be killed at any step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from toolpost import Toolbox
from toolpost.contracts.errors import StoreError
from toolpost.stores.registry import find_backend
from toolpost.testing.simulation.faults import Faults, disk_full
from toolpost.testing.simulation.loop import Scheduler, SimulatedLoop
from toolpost.testing.simulation.threads import Crash, InlineThreads
from toolpost.toolbox.wiring import store_options

if TYPE_CHECKING:
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.spec import Tool
    from toolpost.contracts.storage import Store

T = TypeVar("T")


class DisconnectedError(Exception):
    """The process of a request ended, or its answer was lost."""


class ProcessParts(NamedTuple):
    """State that all processes of a world share; `tell` writes a line of the trace."""

    scheduler: Scheduler
    faults: Faults
    outside: SimulatedLoop
    tools: Sequence[Tool]
    settings: Settings
    tell: Callable[[str], None]


class SimulatedProcess:
    """One process; it starts once, and ends by `stop` or by `crash`. Requests come from the loop `outside`."""

    def __init__(self, parts: ProcessParts, name: str) -> None:
        self.name = name
        self.box: Toolbox | None = None  # while it accepts requests
        self.loop = SimulatedLoop(parts.scheduler, name)
        self.loop.before_query = self._before_query
        self._parts = parts
        self._clock = parts.scheduler.clock(name)
        self._threads = InlineThreads(parts.scheduler, before_commit=self._before_commit, crashed=self.crash)
        self._store: Store | None = None
        self._requests: dict[asyncio.Future[Any], None] = {}  # ordered, unlike a set
        self._ended: asyncio.Future[None] = parts.outside.create_future()
        self._started: asyncio.Future[None] = parts.outside.create_future()
        self._stopping: asyncio.Future[None] = self.loop.create_future()

    @property
    def is_alive(self) -> bool:
        """Whether the process has neither ended nor crashed."""
        return not self._ended.done()

    async def start(self) -> None:
        """Open store and Toolbox; DisconnectedError if the process crashes before it accepts requests."""
        task = self.loop.create_task(self._serve(), name=f"{self.name} main")
        task.add_done_callback(self._end)
        await self._started

    async def stop(self) -> None:
        """Close the Toolbox and its store, and wait for that."""
        self.box = None
        if not self._stopping.done():
            self._stopping.set_result(None)
        await asyncio.shield(self._ended)

    def crash(self) -> None:
        """Kill the process: locks and connections are released, and nothing else happens."""
        if self._ended.done():
            return
        self._parts.tell(f"{self.name} crashes")
        self._parts.faults.crashes += 1
        self.box = None
        self._parts.scheduler.kill(self.loop)
        self._abandon()
        self._threads.kill()
        self._disconnect()

    async def request(self, work: Callable[[Toolbox], Coroutine[Any, Any, T]]) -> T:
        """Do something with the Toolbox; DisconnectedError if the answer does not arrive."""
        box = self.box
        if box is None:
            raise DisconnectedError(self.name)
        is_lost = self._parts.faults.loses_answer()
        answer: asyncio.Future[T] = self._parts.outside.create_future()
        self._requests[answer] = None
        task = self.loop.create_task(work(box))

        def deliver(task: asyncio.Task[T]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if answer.done():
                return
            if is_lost or isinstance(error, asyncio.CancelledError):
                answer.set_exception(DisconnectedError(self.name))
            elif error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        task.add_done_callback(deliver)
        try:
            return await answer
        except asyncio.CancelledError:  # the client hangs up
            task.cancel()
            raise
        finally:
            self._requests.pop(answer, None)

    async def _serve(self) -> None:
        parts = self._parts
        options = store_options(parts.settings)._replace(clock=self._clock, threads=self._threads)
        self._store = store = await find_backend(options.database).open(options)
        box = Toolbox(tools=parts.tools, settings=parts.settings, store=store, clock=self._clock)
        try:
            async with box:
                self.box = box
                self._started.set_result(None)
                await self._stopping
        finally:
            await store.close()

    def _end(self, task: asyncio.Task[None]) -> None:
        """Report the end of a process that was stopped, or could not open its store."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._parts.tell(f"{self.name} ends: {error}")
            if not isinstance(error, StoreError):
                raise error
        self._parts.scheduler.kill(self.loop)
        self._threads.kill()
        self._disconnect()

    def _disconnect(self) -> None:
        self._ended.set_result(None)
        lost = [self._started, *self._requests]
        for future in lost:
            if not future.done():
                future.set_exception(DisconnectedError(self.name))

    def _before_commit(self) -> None:
        fault = self._parts.faults.of_commit()
        if fault == "full":
            raise disk_full()
        if fault == "before":
            if self.loop.is_running():  # a commit of the event loop, as those of limits
                self.crash()
            else:
                self._abandon()
            raise Crash
        if fault == "after":
            self._threads.crash_soon = True

    def stall(self, seconds: float) -> None:
        """Run nothing of this process for some time, as after SIGSTOP or while its machine is suspended."""
        self._parts.tell(f"{self.name} stalls for {seconds:.1f} s")
        self._parts.faults.stalls += 1
        self.loop.stalled_until = self._threads.stalled_until = self._parts.scheduler.now + seconds

    def _before_query(self) -> None:
        if self._parts.faults.fails_query():
            raise StoreError("the database cannot be read")

    def _abandon(self) -> None:
        """Release what the kernel releases for a killed process, before its threads end."""
        abandon = getattr(self._store, "abandon", None)
        if abandon is not None:
            abandon()
