"""Answers from the writer's thread to those who wait for them on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """What to tell the one who waits: a result or an error."""

    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


def send(replies: Iterable[Reply]) -> None:
    """Answer from any thread; each loop is woken once."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Reply]] = defaultdict(list)
    for reply in replies:
        by_loop[reply.future.get_loop()].append(reply)
    for loop, its_replies in by_loop.items():
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(_deliver, its_replies)


def _deliver(replies: list[Reply]) -> None:
    for future, result, error in replies:
        if future.done():  # The one who waited was cancelled.
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
