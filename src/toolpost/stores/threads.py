"""Threads of stores, written as generators that yield before they block.

The product runs each in a thread. A simulation runs the same generators without threads, in an order that it chooses.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeAlias

EXIT_PATIENCE_S = 10.0


class Take(NamedTuple):
    """Block until a queue has an item, which the generator receives."""

    queue: SimpleQueue[Any]


class Wait(NamedTuple):
    """Block until an event is set, for at most `timeout_s`."""

    event: threading.Event
    timeout_s: float


class Block(NamedTuple):
    """Run a function that blocks, such as one that waits for a message of a server; the generator gets its result."""

    function: Callable[[], Any]


class Listen(NamedTuple):
    """Run a function that blocks until a server sends something, for at most the seconds that it gets."""

    function: Callable[[float], Any]
    timeout_s: float


Blocking: TypeAlias = Take | Wait | Block | Listen
Work: TypeAlias = Generator[Blocking, Any, None]


class StoreThread(Protocol):
    """A thread that was started."""

    async def finished(self) -> None:
        """Wait until its work has ended."""
        ...


class StoreThreads(Protocol):
    """Runs the work of a store outside of the event loop."""

    def start(self, work: Work, *, name: str, stop: Callable[[], None]) -> StoreThread:
        """Run the work; `stop` makes it end if the program ends first."""
        ...

    def before_commit(self) -> None:
        """Do nothing, or raise the error of a disk or a server: every store calls this before each commit."""
        ...


class DaemonThreads:
    """Runs each work in a daemon thread, which has some seconds to end with the program."""

    def start(self, work: Work, *, name: str, stop: Callable[[], None]) -> StoreThread:
        return _DaemonThread(work, name, stop)

    def before_commit(self) -> None:
        pass


class _DaemonThread:
    def __init__(self, work: Work, name: str, stop: Callable[[], None]) -> None:
        self._work = work
        self._stop = stop
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        atexit.register(self._stop_at_exit)

    async def finished(self) -> None:
        await asyncio.to_thread(self._thread.join)
        atexit.unregister(self._stop_at_exit)

    def _run(self) -> None:
        item: Any = None
        with suppress(StopIteration):
            while True:
                item = _block(self._work.send(item))

    def _stop_at_exit(self) -> None:
        self._stop()
        self._thread.join(EXIT_PATIENCE_S)


def _block(blocking: Blocking) -> Any:
    match blocking:
        case Take(queue):
            return queue.get()
        case Wait(event, timeout_s):
            return event.wait(timeout_s)
        case Block(function):
            return function()
        case Listen(function, timeout_s):
            return function(timeout_s)


DAEMON_THREADS = DaemonThreads()
