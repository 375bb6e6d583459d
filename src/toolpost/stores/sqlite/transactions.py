"""Transactions of the writer in SQLite: events and functions of a batch in one commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import cast

from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import RunEvent
from toolpost.stores.sqlite.database import FAULTS, describe_fault, store_error
from toolpost.stores.sqlite.event_appender import EventAppender
from toolpost.stores.threads import DAEMON_THREADS
from toolpost.stores.writer import Barrier, Item, ItemResult, WriteFunction


class TransactionRunner:
    """Runs batches as transactions on the only connection that writes; `before_commit` may prevent a commit."""

    limit = 16_384
    gather_s = 0.0  # gathering costs callers more time than it saves

    def __init__(
        self,
        db: sqlite3.Connection,
        appender: EventAppender,
        *,
        path: Path,
        before_commit: Callable[[], None] = DAEMON_THREADS.before_commit,
    ) -> None:
        self._db = db
        self._appender = appender
        self._before_commit = before_commit
        self._path = path

    def commit(self, batch: Sequence[Item]) -> list[ItemResult]:
        if not any(isinstance(item, RunEvent | WriteFunction) for item in batch):
            return self._run_batch(batch)
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            self._appender.begin(db)
            results = self._run_batch(batch)
            self._appender.finish(db)
            self._before_commit()
            db.execute("COMMIT")
        except BaseException:
            self._appender.forget()
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return results

    @property
    def place(self) -> str:
        return str(self._path)

    def explain(self, error: Exception) -> StoreError:
        return store_error(error, self._path)

    def describe_fault(self, cause: BaseException | None) -> str:
        return describe_fault(cause)

    def close(self) -> None:
        self._db.close()

    def _run_batch(self, batch: Sequence[Item]) -> list[ItemResult]:
        """Append events and run functions in the order of the batch."""
        results: list[ItemResult] = []
        for kind, items in groupby(batch, type):
            if issubclass(kind, RunEvent):
                self._appender.append(self._db, cast("Iterable[RunEvent]", items))
                continue
            for item in items:
                if isinstance(item, WriteFunction):
                    results.append(self._run_job(item))
                elif isinstance(item, Barrier):
                    results.append(ItemResult(item.future))
        return results

    def _run_job(self, job: WriteFunction) -> ItemResult:
        db = self._db
        db.execute("SAVEPOINT job")
        try:
            result = job.work(db)
        except Exception as exc:
            if not db.in_transaction:  # SQLite has aborted the whole transaction, for example because the disk is full
                raise
            db.execute("ROLLBACK TO job")
            db.execute("RELEASE job")
            return ItemResult(job.future, error=store_error(exc, self._path) if isinstance(exc, FAULTS) else exc)
        db.execute("RELEASE job")
        return ItemResult(job.future, result)
