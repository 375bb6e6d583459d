"""Reading beside the writer: a connection that cannot write, on a thread of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from toolpost.contracts.errors import StoreError
from toolpost.stores.database import FAULTS, open_readable, store_error

T = TypeVar("T")


class Reader:
    """Runs queries one at a time; each sees what was durable when it began."""

    def __init__(self, path: Path, *, busy_s: float) -> None:
        self._path = path
        self._closed = False
        self._db = open_readable(path, busy_s=busy_s)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toolpost-reader")

    async def query(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work`."""
        if self._closed:
            raise StoreError(f"the store at {str(self._path)!r} is closed; open it again to go on")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._db)
        except FAULTS as exc:
            raise store_error(exc, self._path) from exc

    async def close(self) -> None:
        """Finish what runs and let go."""
        self._closed = True
        await asyncio.to_thread(self._thread.shutdown)
        self._db.close()
