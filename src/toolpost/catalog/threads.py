"""Worker threads for plain functions: daemons, so a function that never returns cannot block the program's exit.

Threads are stopped before the interpreter exits if possible. The interpreter kills a thread that returns to it later
(before Python 3.14, by unwinding its stack), which aborts the whole program in a C++ or Rust library.
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
# A future cannot store the first, and the others would stop the event loop.
_NOT_FOR_A_LOOP = (StopIteration, KeyboardInterrupt, GeneratorExit)


class WorkCancelled(Exception):  # noqa: N818 - not an error: the caller is gone
    """Stops the work of a cancelled caller."""


class _Worker:
    """One thread that runs jobs, and is idle between them."""

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
            except BaseException as raised:  # noqa: BLE001 - foreign code; passed to the caller
                result, error = None, raised
            idle_workers.append(self)
            _deliver(future, result, error)
            del job, future, fn, result, error


async def run_in_thread(fn: Callable[[], Any]) -> Any:
    """Run `fn` in a worker thread, with the context variables of the caller.

    If the waiting task is cancelled, the thread continues.
    """
    future = asyncio.get_running_loop().create_future()
    _free_worker().jobs.put((future, functools.partial(contextvars.copy_context().run, fn)))
    return await future


async def run_cancellable(work: Callable[[Callable[[], None]], T]) -> T:
    """Run `work` in a worker thread, with a function that raises once the caller is cancelled.

    `work` must call that function regularly; the thread then stops soon after the cancellation.
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
    """Return whether an exception comes from outside, not from the foreign code that the caller awaits.

    Ctrl-C reaches only the main thread, where `asyncio.run` cancels the main task instead of raising. Call this where
    the exception is caught: a closed coroutine raises its GeneratorExit there, after the awaited coroutine has
    swallowed another one, so the traceback has no deeper frame.
    """
    if isinstance(raised, GeneratorExit):
        return raised.__traceback__ is None or raised.__traceback__.tb_next is None
    return (
        isinstance(raised, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def loop_error(raised: BaseException) -> BaseException:
    """Return the exception, or an error that names it if it would stop the event loop."""
    return RuntimeError(f"the tool raised {type(raised).__name__}") if isinstance(raised, _NOT_FOR_A_LOOP) else raised


def _free_worker() -> _Worker:
    while True:
        try:
            worker = idle_workers.pop()
        except IndexError:
            return _Worker()
        if worker.thread.is_alive():  # a forked process inherits the list, but not the threads
            return worker


@atexit.register  # at import, not with the first thread: users of threads then exit before them
def _end_workers() -> None:
    """Stop the threads within EXIT_PATIENCE_S in total; threads with running functions are abandoned."""
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
        except RuntimeError:  # the loop was closed between the two lines
            return
