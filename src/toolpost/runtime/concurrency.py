"""Many calls at once, never more than allowed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")


async def map_concurrent(items: Iterable[T], fn: Callable[[T], Awaitable[R]], *, max_concurrency: int = 8) -> list[R]:
    """Apply `fn` to every item, at most `max_concurrency` at a time; results come in the order of the items."""
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
