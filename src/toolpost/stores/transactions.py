"""One batch, one transaction: events are appended, functions run, each with a failure of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from toolpost.contracts.events import RunEvent
from toolpost.stores.appender import EventAppender
from toolpost.stores.database import FAULTS, store_error
from toolpost.stores.replies import Reply


class Job(NamedTuple):
    """A function to run on the writer's connection, and the one who waits for it."""

    work: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]


class Barrier(NamedTuple):
    """One who waits for all that was put before; nothing by itself."""

    future: asyncio.Future[Any]


class Stop(NamedTuple):
    """Wakes the writer so that it sees that it should end."""


Item: TypeAlias = RunEvent | Job | Barrier | Stop


class Transactor:
    """Turns batches into transactions on the one connection that writes."""

    def __init__(self, db: sqlite3.Connection, appender: EventAppender, *, path: Path) -> None:
        self._db = db
        self._appender = appender
        self.path = path

    def commit(self, batch: Sequence[Item]) -> list[Reply]:
        """Make a batch durable and say what came of its functions; when this raises, nothing of it was kept."""
        if not any(isinstance(item, RunEvent | Job) for item in batch):
            return self._play(batch)
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            self._appender.begin(db)
            replies = self._play(batch)
            self._appender.finish(db)
            db.execute("COMMIT")
        except BaseException:
            self._appender.forget()
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return replies

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()

    def _play(self, batch: Sequence[Item]) -> list[Reply]:
        """Everything in the order in which it was put."""
        replies: list[Reply] = []
        events: list[RunEvent] = []
        for item in batch:
            if isinstance(item, RunEvent):
                events.append(item)
            elif isinstance(item, Job):
                self._append(events)
                events = []
                replies.append(self._attempt(item))
            elif isinstance(item, Barrier):
                replies.append(Reply(item.future))
        self._append(events)
        return replies

    def _append(self, events: list[RunEvent]) -> None:
        if events:
            self._appender.append(self._db, events)

    def _attempt(self, job: Job) -> Reply:
        db = self._db
        db.execute("SAVEPOINT job")
        try:
            result = job.work(db)
        except Exception as exc:
            if not db.in_transaction:  # SQLite gave up the whole transaction, as it may when the disk is full.
                raise
            db.execute("ROLLBACK TO job")
            db.execute("RELEASE job")
            return Reply(job.future, error=store_error(exc, self.path) if isinstance(exc, FAULTS) else exc)
        db.execute("RELEASE job")
        return Reply(job.future, result)
