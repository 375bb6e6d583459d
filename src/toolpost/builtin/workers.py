"""Work on files in a thread that ends when nobody waits for it any more."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from toolpost.catalog.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Abandoned(Exception):  # noqa: N818 - no failure: nobody waits for the work
    """Ends work that was cancelled; nobody sees it."""


async def in_worker(work: Callable[[Callable[[], None]], T]) -> T:
    """Run `work` in a thread; it calls what it is given now and then, which raises once the caller is gone."""
    gone = threading.Event()

    def check_cancelled() -> None:
        if gone.is_set():
            raise Abandoned

    try:
        return cast("T", await run_in_thread(partial(work, check_cancelled)))
    finally:
        gone.set()
