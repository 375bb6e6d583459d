"""How many calls may run at once: a counter with a fair queue, free of charge while there is room."""

from __future__ import annotations

import asyncio
from collections import deque


class Limiter:
    """A semaphore whose fast path is one comparison; whoever waits longest goes first."""

    __slots__ = ("_free", "_waiting", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Take a place if one is free and nobody waits."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return True
        return False

    async def acquire(self) -> None:
        """Take a place, waiting for one if need be."""
        if self.try_acquire():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the place was given just before the cancellation arrived
            raise

    def release(self) -> None:
        """Give a place back, to the next in line if there is one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
