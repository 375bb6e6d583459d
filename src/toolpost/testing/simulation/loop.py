"""Event loops of simulated processes: virtual time, and an order of steps that a seed chooses."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import math
import zlib
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any, Protocol, TypeVar, TypeVarTuple

from toolpost.contracts.clock import Clock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
WALL_OFFSET = 1_800_000_000.0
_TURN_S = 0.000_01  # virtual duration of one turn of a loop
_SLOWEST_QUERY_S = 0.002
_MOST_CLOSES = 20  # of one coroutine that catches GeneratorExit


class Runnable(Protocol):
    """A loop or a thread, of which the scheduler runs one part at a time."""

    def due(self, now: float) -> float:
        """Return the time at which it can run, infinity if it waits for others."""
        ...

    def run_part(self) -> None:
        """Run until it has to wait, or until others may run."""
        ...


class Scheduler:
    """Runs loops and threads one at a time, in an order that the seed chooses, and owns their virtual time.

    Time passes only while nothing can run; then `on_time` gets the new one. Equal seeds with equal work have equal
    orders. Mutable: it counts `turns`, and `commits` of all processes.
    """

    def __init__(self, seed: int | str) -> None:
        self.random = Random(f"order of {seed}")  # noqa: S311 - a simulation has to be repeatable
        self.shuffles = self.random.random() < 0.5
        self.now = 1000.0
        self.wall_offset = WALL_OFFSET
        self.turns = 0
        self.commits = 0
        self.on_time: Callable[[float], None] = _ignore_time
        self._numbers = itertools.count()
        self._runnables: list[Runnable] = []
        self._timers: list[tuple[float, int, SimulatedLoop, asyncio.TimerHandle]] = []
        self._killed: list[SimulatedLoop] = []

    def clock(self, name: str) -> Clock:
        """Return the clock of a process; its random numbers are its own, so other processes do not change them."""
        chance = Random(f"{name} of {self.random.random()}")  # noqa: S311 - as above
        return Clock(
            wall=lambda: self.now + self.wall_offset,
            monotonic=lambda: self.now,
            chance=chance.random,
            random_bits=chance.getrandbits,
            secret_bytes=chance.randbytes,
        )

    @property
    def fingerprint(self) -> str:
        """Return a text that differs between runs in which anything ran in another order or at another time."""
        return f"{self.turns} turns, {self.now:.9f} s, {zlib.crc32(repr(self.random.getstate()).encode()):08x}"

    def add(self, runnable: Runnable) -> None:
        """Run this from now on."""
        self._runnables.append(runnable)

    def remove(self, runnable: Runnable) -> None:
        """Never run this again."""
        with contextlib.suppress(ValueError):
            self._runnables.remove(runnable)

    def add_timer(self, when: float, loop: SimulatedLoop, handle: asyncio.TimerHandle) -> None:
        """Run a callback of a loop at a time."""
        heapq.heappush(self._timers, (when, next(self._numbers), loop, handle))

    def kill(self, loop: SimulatedLoop) -> None:
        """End a loop immediately: none of its callbacks runs again, and its coroutines are discarded soon."""
        loop.is_dead = True
        loop.ready.clear()
        self.remove(loop)
        self._killed.append(loop)

    def run_until_done(self, task: asyncio.Task[T]) -> T:
        """Run everything until a task is done, and return its result; RuntimeError if nothing can run before that."""
        while not task.done():
            self._run_turn()
        return task.result()

    def _run_turn(self) -> None:
        now = self.now
        timers = self._timers
        while timers and timers[0][0] <= now:
            _, _, loop, handle = heapq.heappop(timers)
            if not loop.is_dead and not handle.cancelled():
                loop.ready.append(handle)
        able = [one for one in self._runnables if one.due(now) <= now]
        if not able:
            self._advance()
            return
        self.turns += 1
        self.now = now + _TURN_S
        chosen = able[0] if len(able) == 1 else able[int(self.random.random() * len(able))]
        chosen.run_part()
        while self._killed:
            self._killed.pop().discard()

    def _advance(self) -> None:
        """Move the time to the next timer, or to the next thread that is due."""
        while self._timers and (self._timers[0][2].is_dead or self._timers[0][3].cancelled()):
            heapq.heappop(self._timers)
        when = min((one.due(self.now) for one in self._runnables), default=math.inf)
        if self._timers:
            when = min(when, self._timers[0][0])
        if when == math.inf:
            raise RuntimeError("the simulation waits for something that never happens")
        self.now = max(self.now, when)
        self.on_time(self.now)


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of one simulated process; a call in an executor runs in this thread, a moment later.

    `before_query` may raise the error of a call in an executor of a store. The loop has no sockets, no signals and no
    child processes.
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.is_dead = False
        super().__init__()
        self.name = name
        self.stalled_until = 0.0
        self.before_query: Callable[[], None] = _do_nothing
        self.ready: deque[asyncio.Handle] = deque()
        self._scheduler = scheduler
        self._busy_until: dict[object, float] = {}  # by executor
        scheduler.add(self)

    def due(self, now: float) -> float:
        return max(now, self.stalled_until) if self.ready else math.inf

    def run_part(self) -> None:
        """Run the callbacks that are ready now, but not those that they add."""
        ready, scheduler = self.ready, self._scheduler
        count = len(ready)
        if count > 1 and scheduler.shuffles:
            callbacks = list(ready)
            scheduler.random.shuffle(callbacks)
            ready.clear()
            ready.extend(callbacks)
        asyncio._set_running_loop(self)  # noqa: SLF001 - what every event loop calls
        try:
            for _ in range(count):
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001 - as above
                if self.is_dead:
                    return
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    def discard(self) -> None:
        """Close the coroutines of a killed process; the first error that one raises ends it as well."""
        asyncio._set_running_loop(self)  # noqa: SLF001 - as above
        try:
            for task in asyncio.all_tasks(self):
                _close(task.get_coro())
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_dead:
            self.ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._scheduler.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.is_dead:
            self._scheduler.add_timer(when, self, handle)
        return handle

    def time(self) -> float:
        return self._scheduler.now

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        if self.is_dead:
            coro.close()
            raise RuntimeError("the process of this event loop has ended")
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Run a function between two delays; the functions of one executor run in order."""
        future: asyncio.Future[T] = self.create_future()
        chance = self._scheduler.random.random
        start = max(self._busy_until.get(executor, 0.0), self._scheduler.now) + chance() * _SLOWEST_QUERY_S
        if executor is not None:  # the default executor has many threads
            self._busy_until[executor] = start

        def work() -> None:
            try:
                if executor is not None:
                    self.before_query()
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - for the caller
                self.call_later(chance() * _SLOWEST_QUERY_S, _settle, future, None, error)
            else:
                self.call_later(chance() * _SLOWEST_QUERY_S, _settle, future, result, None)

        self.call_at(start, work)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self  # noqa: SLF001 - as above

    def is_closed(self) -> bool:
        return self.is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore errors of a killed process; those of living processes are results of their tasks."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when it is due."""


def _ignore_time(_: float) -> None:
    pass


def _do_nothing() -> None:
    pass


def _close(coroutine: Any) -> None:
    for _ in range(_MOST_CLOSES):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001, S112 - its process has ended, so the error has no receiver
            continue
        return


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
