"""The same call by several callers at once, and the sizes of plots; standard library only, as peers run it too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bench.core.harness import Contender

CROWDS = (1, 4, 16, 64, 256)
SIZES = (100, 1_000, 10_000)
CALLS = 512  # a turn, whatever the concurrency


def crowds_of(name: str, call: Callable[[], Awaitable[object]]) -> list[Contender]:
    """The same call at each concurrency, `CALLS` calls a turn."""
    return [Contender(name=f"{name} @ {crowd}", call=_at_once(call, crowd)) for crowd in CROWDS]


def _at_once(call: Callable[[], Awaitable[object]], crowd: int) -> Callable[[], Awaitable[object]]:
    async def caller(times: int) -> None:
        for _ in range(times):
            await call()
            await asyncio.sleep(0)  # a tool that waits for something lets the others go on

    async def turn() -> object:
        return await asyncio.gather(*(caller(CALLS // crowd) for _ in range(crowd)))

    return turn
