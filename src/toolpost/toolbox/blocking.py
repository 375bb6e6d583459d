"""A bridge for callers without an event loop: a loop in a separate thread, and a blocking MCP client."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")
EXIT_PATIENCE_S = 2.0


class EventLoopThread:
    """An event loop in a separate thread; `run` blocks until a coroutine has finished there.

    If a program exits without leaving the context, the thread is stopped, with a timeout of a few seconds.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="toolpost-loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        atexit.register(self._end_at_exit)
        return self

    def run(self, work: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        """Run a coroutine and return its result; an interrupt or TimeoutError here cancels the coroutine."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this is the thread of the event loop: await the coroutine instead")
        waiting = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return waiting.result(timeout_s)
        except BaseException:
            waiting.cancel()
            raise

    def __exit__(self, *_: object) -> None:
        atexit.unregister(self._end_at_exit)
        self.run(self._finish())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _end_at_exit(self) -> None:
        if not self._thread.is_alive():  # a forked process has the object without its thread
            return
        with contextlib.suppress(Exception):  # the program exits: remaining resources are abandoned
            self.run(self._finish(), timeout_s=EXIT_PATIENCE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(EXIT_PATIENCE_S)

    async def _finish(self) -> None:
        """Cancel the remaining tasks, and close the generators and threads of the loop."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()
