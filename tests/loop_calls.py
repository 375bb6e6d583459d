"""Count what the event loop's own thread does at a time: function calls, which are the same on every machine."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any


class LoopCalls:
    """The most calls between two turns of a task that only waits for its next turn."""

    def __init__(self) -> None:
        self.most = 0
        self._calls = 0

    def count(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count one event of the profiler."""
        self._calls += event in ("call", "c_call")

    async def watch(self) -> None:
        """Note how many calls there are between two turns."""
        while True:
            self._calls = 0
            await asyncio.sleep(0.001)
            self.most = max(self.most, self._calls)


@asynccontextmanager
async def counted_calls() -> AsyncIterator[LoopCalls]:
    """Count calls until the end of the block; what other threads call does not count."""
    calls = LoopCalls()
    watching = asyncio.create_task(calls.watch())
    before = sys.getprofile()
    sys.setprofile(calls.count)
    try:
        yield calls
        await asyncio.sleep(0.001)
    finally:
        sys.setprofile(before)
        watching.cancel()
