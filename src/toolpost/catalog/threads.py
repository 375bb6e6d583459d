"""Worker threads for plain functions: daemons, so a function that never returns cannot hold up the program's end.

Those that can end do so before the interpreter does: it kills a thread that comes back to it later (before Python 3.14,
by unwinding its stack), and in a library of C++ or Rust that aborts the whole program.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import functools
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar, cast

EXIT_PATIENCE_S = 0.5

_Job = tuple["asyncio.Future[Any]", "Callable[[], Any]"]
idle_workers: deque[_Worker] = deque()
_workers: list[_Worker] = []
T = TypeVar("T")
# A future cannot carry the first, and the others would end the event loop.
_NOT_FOR_A_LOOP = (StopIteration, KeyboardInterrupt, GeneratorExit)


class WorkCancelled(Exception):  # noqa: N818 - no failure: nobody waits for the work
    """Ends the work of a cancelled caller; nobody sees it."""


class _Worker:
    """One thread that waits for jobs and goes back to the idle ones after each."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="toolpost-worker", daemon=True)
        self.thread.start()
        _workers.append(self)

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            future, fn = job
            try:
                result, error = fn(), None
            except BaseException as raised:  # noqa: BLE001 - foreign code; handed to whoever awaits it
                result, error = None, raised
            idle_workers.append(self)
            _deliver(future, result, error)
            del job, future, fn, result, error


async def run_in_thread(fn: Callable[[], Any]) -> Any:
    """Run `fn` in a worker thread, with the context variables of the caller.

    When the waiting task is cancelled the thread is left to itself.
    """
    future = asyncio.get_running_loop().create_future()
    _free_worker().jobs.put((future, functools.partial(contextvars.copy_context().run, fn)))
    return await future


async def run_cancellable(work: Callable[[Callable[[], None]], T]) -> T:
    """Run `work` in a worker thread; the function it is given raises once the caller is cancelled.

    `work` calls that function now and then, so that the thread ends soon after.
    """
    cancelled = threading.Event()

    def check_cancelled() -> None:
        if cancelled.is_set():
            raise WorkCancelled

    try:
        return cast("T", await run_in_thread(functools.partial(work, check_cancelled)))
    finally:
        cancelled.set()


def is_interrupt(raised: BaseException) -> bool:
    """Return whether an exception may come from outside, and not from the foreign code that the caller awaits.

    Ctrl-C reaches the main thread alone, and there `asyncio.run` cancels the main task in place of raising. To be
    asked where the exception is caught: a closed coroutine raises its GeneratorExit there, after the coroutine that
    it awaits has swallowed another, so that the traceback has no deeper frame.
    """
    if isinstance(raised, GeneratorExit):
        return raised.__traceback__ is None or raised.__traceback__.tb_next is None
    return (
        isinstance(raised, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def loop_error(raised: BaseException) -> BaseException:
    """Return an exception, or in place of one that would end an event loop an error that names it."""
    return RuntimeError(f"the tool raised {type(raised).__name__}") if isinstance(raised, _NOT_FOR_A_LOOP) else raised


def _free_worker() -> _Worker:
    while True:
        try:
            worker = idle_workers.pop()
        except IndexError:
            return _Worker()
        if worker.thread.is_alive():  # a forked process inherits the list, but not the threads
            return worker


@atexit.register  # here and not with the first thread, so that whoever uses threads ends before them
def _end_workers() -> None:
    """End the threads, which take at most the patience together; one whose function goes on is left to itself."""
    deadline = time.monotonic() + EXIT_PATIENCE_S
    idle_workers.clear()
    for worker in _workers:
        worker.jobs.put(None)
    for worker in _workers:
        worker.thread.join(max(0.0, deadline - time.monotonic()))


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    def settle() -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(loop_error(error))

    loop = future.get_loop()
    if not loop.is_closed():
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop closed between the two lines; nobody waits any more
            return
