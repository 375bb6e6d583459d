"""The floor of a native call: by hand, for one tool, what no safe call can do without."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any

import jsonschema_rs

_TRIES = 3
_THRESHOLD = 5
_DEADLINE_S = 30.0
_PAUSE_S = 0.1


class Floor:
    """Validates, asks a breaker and a semaphore, sets a timer, tries up to three times, queues two events.

    Not a product: no policy, no credentials, no journal, no result checked, nothing redacted.
    """

    def __init__(self, fn: Callable[..., Awaitable[Any]], schema: dict[str, Any]) -> None:
        self._fn = fn
        self._fits = jsonschema_rs.validator_for(schema).is_valid
        self._failures = 0
        self._room = asyncio.Semaphore(10)
        self._events: SimpleQueue[tuple[str, float, Any]] = SimpleQueue()

    async def call(self, arguments: dict[str, Any]) -> Any:
        """Make one call."""
        if not self._fits(arguments):
            raise ValueError(f"the arguments do not fit: {arguments!r}")
        if self._failures >= _THRESHOLD:
            raise RuntimeError("the breaker is open")
        task = asyncio.current_task()
        assert task is not None
        timer = asyncio.get_running_loop().call_later(_DEADLINE_S, task.cancel)
        self._events.put(("started", time.time(), arguments))
        try:
            async with self._room:
                result = await self._tried(arguments)
        finally:
            timer.cancel()
        self._failures = 0
        self._events.put(("completed", time.time(), result))
        return result

    async def _tried(self, arguments: dict[str, Any]) -> Any:
        for again in range(1, _TRIES + 1):
            try:
                return await self._fn(**arguments)
            except ConnectionError:
                self._failures += 1
                if again == _TRIES:
                    raise
                await asyncio.sleep(_PAUSE_S * again)
        return None

    async def settle(self) -> None:
        """Empty the queue, and let the loop forget the timers."""
        while not self._events.empty():
            self._events.get_nowait()
        await asyncio.sleep(0)
