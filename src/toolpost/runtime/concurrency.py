"""Concurrency primitives: a bounded map, and background tasks."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from toolpost.contracts.errors import StoreError, TakenOverError

STORE_RETRY_S = 1.0
_log = logging.getLogger("toolpost.runtime")
T = TypeVar("T")
R = TypeVar("R")


async def map_concurrent(items: Iterable[T], fn: Callable[[T], Awaitable[R]], *, max_concurrency: int = 8) -> list[R]:
    """Apply `fn` to every item, at most `max_concurrency` concurrently; results are in the order of the items."""
    if max_concurrency < 1:
        msg = f"max_concurrency must be at least 1, not {max_concurrency}"
        raise ValueError(msg)
    gate = asyncio.Semaphore(max_concurrency)

    async def one(item: T) -> R:
        async with gate:
            return await fn(item)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]


class BackgroundTasks:
    """Reference tasks until they are done; asyncio itself references them weakly."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task; await it with `asyncio.shield` if the caller may be cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def retry_write(self, write: Callable[[], Awaitable[None]]) -> None:
        """Retry a write in the background until it succeeds, or another process has taken over its call."""

        async def retry() -> None:
            while True:
                await asyncio.sleep(STORE_RETRY_S)
                try:
                    return await write()
                except TakenOverError as error:
                    return _log.warning("not written: %s", error)
                except StoreError:
                    continue

        self.start(retry())

    def notify(
        self, handler: Callable[[T], Awaitable[None] | None], value: T, *, log: logging.Logger, name: str
    ) -> None:
        """Call a handler without waiting for a coroutine; exceptions are logged as failures of `name`."""

        async def finish(handled: Awaitable[None]) -> None:
            try:
                await handled
            except Exception:
                log.exception("%s", name)

        try:
            handled = handler(value)
        except Exception:
            log.exception("%s", name)
        else:
            if inspect.isawaitable(handled):
                self.start(finish(handled))

    async def finish(self, *, patience_s: float) -> None:
        """Wait for running tasks, and cancel those that take longer than `patience_s`."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=patience_s)
            for task in late:
                task.cancel()
