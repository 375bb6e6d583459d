"""Transactions of the writer in PostgreSQL: events, statements and functions of a batch in one commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import psycopg
from msgspec.structs import replace
from psycopg import errors

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import RunEvent
from toolpost.stores.postgres.changes import PostgresNotifications, publish_end
from toolpost.stores.postgres.database import (
    FAULTS,
    Connection,
    Database,
    constant,
    describe_fault,
    is_lost,
    roll_back,
)
from toolpost.stores.postgres.event_appender import (
    POSITION_BITS,
    LeaseLostError,
    PostgresEventAppender,
    RunChangedError,
)
from toolpost.stores.postgres.liveness import Leases
from toolpost.stores.run_chains import RunName
from toolpost.stores.threads import DAEMON_THREADS
from toolpost.stores.writer import Barrier, Item, ItemResult, Statement, StatementKind, WriteFunction

RECONNECT_S = 5.0  # then functions fail, and events wait
_RETRY_S = 0.05
_CONFLICTS_ALLOWED = 20
# Locked, because the server may still be at work on the commit.
_LAST_BATCH = "SELECT batch FROM owners WHERE id = %s FOR NO KEY UPDATE"
_CONFLICTS = (RunChangedError, errors.DeadlockDetected, errors.SerializationFailure)
_CONFLICTS_OF_EVENTS = (*_CONFLICTS, errors.UniqueViolation)  # another process began the same run


class _ConnectionLostError(Exception):
    """The connection ended during a transaction, which was not committed."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__()
        self.error = error


class _Doubt(NamedTuple):
    """A transaction whose commit was sent and not confirmed: its owner, number, and how many events it contains."""

    owner_id: str
    batch: int
    events: int


class _Attempt(NamedTuple):
    """How a batch is tried; after a conflict heads are locked, and after a fault each statement runs by itself."""

    is_locking: bool = False
    is_careful: bool = False


class PostgresTransactions:
    """Runs batches as transactions on the only connection of this process that writes.

    Statements of a kind run together, and functions one by one, each in a savepoint. Statements of several kinds run in
    any order, except those about one row. After a conflict with another process, or a lost connection, the batch is run
    again, so its functions have no effect outside of the database.
    If the connection is lost during a commit, the number of the batch in the row of this process tells the outcome.
    """

    limit = 1 << POSITION_BITS
    # A transaction is several round trips: 64 callers need 17 % less CPU a call, and 6 % more time (bench.postgres).
    gather_s = 0.002

    def __init__(
        self,
        database: Database,
        appender: PostgresEventAppender,
        leases: Leases,
        notifications: PostgresNotifications,
        *,
        db: Connection | None = None,
        clock: Clock = SYSTEM_CLOCK,
        before_commit: Callable[[], None] = DAEMON_THREADS.before_commit,
    ) -> None:
        self._database = database
        self._appender = appender
        self._leases = leases
        self._notifications = notifications
        self._db = db
        self._clock = clock
        self._before_commit = before_commit
        self._doubt: _Doubt | None = None

    @property
    def place(self) -> str:
        return self._database.place

    def commit(self, batch: Sequence[Item]) -> list[ItemResult]:
        if not any(isinstance(item, RunEvent | WriteFunction | Statement) for item in batch):
            return [ItemResult(item.future) for item in batch if isinstance(item, Barrier)]
        deadline = self._clock.monotonic() + RECONNECT_S
        batch = self._without_stored(batch, deadline)
        how, conflicts = _Attempt(), 0
        while True:
            try:
                return self._attempt(self._connect(deadline), batch, how)
            except _CONFLICTS_OF_EVENTS:
                conflicts += 1
                if conflicts > _CONFLICTS_ALLOWED:
                    raise
                how = how._replace(is_locking=True)
            except LeaseLostError:
                self._register_again()
            except _ConnectionLostError as error:
                if self._clock.monotonic() > deadline:
                    raise self.explain(error.error) from error.error
            except FAULTS:
                if how.is_careful:
                    raise
                how = how._replace(is_careful=True)

    def explain(self, error: Exception) -> StoreError:
        return self._database.explain(error)

    def describe_fault(self, cause: BaseException | None) -> str:
        return describe_fault(cause)

    def close(self) -> None:
        with suppress(psycopg.Error, StoreError):  # the lease ends by itself
            db = self._connect(deadline=0.0)
            self._leases.release(db)
            publish_end(db, self._leases.owner_id)
        if self._db is not None:
            self._db.close()

    def _attempt(self, db: Connection, batch: Sequence[Item], how: _Attempt) -> list[ItemResult]:
        try:
            runs = () if how.is_careful else {_run_of(item) for item in batch if isinstance(item, RunEvent)}
            self._appender.begin(db, at=self._clock.monotonic(), runs=runs, locking=how.is_locking)
            self._notifications.clear()  # those of an attempt that was rolled back
            results = _Batch(self._database, self._appender, self._notifications, db, is_careful=how.is_careful).run(
                batch
            )
            self._before_commit()
            self._commit(db, batch)
        except psycopg.Error as error:
            self._appender.forget()
            roll_back(db)
            if is_lost(db):
                raise _ConnectionLostError(error) from error
            raise
        except BaseException:
            self._appender.forget()
            roll_back(db)
            raise
        self._appender.committed()
        self._notifications.send(db)
        return results

    def _commit(self, db: Connection, batch: Sequence[Item]) -> None:
        owner_id, number = self._appender.batch
        try:
            db.execute("COMMIT")
        except psycopg.Error as error:
            if not is_lost(db):
                raise
            self._doubt = _Doubt(owner_id, number, sum(isinstance(item, RunEvent) for item in batch))
            if not self._was_committed(self._doubt, self._clock.monotonic() + RECONNECT_S):
                raise error from None

    def _without_stored(self, batch: Sequence[Item], deadline: float) -> Sequence[Item]:
        """Leave out the events at the beginning of a batch that an earlier transaction has stored after all."""
        doubt = self._doubt
        if doubt is None or not self._was_committed(doubt, deadline):
            return batch
        stored = doubt.events
        left: list[Item] = []
        for item in batch:
            if stored and isinstance(item, RunEvent):
                stored -= 1
            else:
                left.append(item)
        return left

    def _was_committed(self, doubt: _Doubt, deadline: float) -> bool:
        """Return whether a transaction was committed; StoreError, and the doubt stays, while the server is away."""
        while True:
            try:
                row = self._connect(deadline).execute(_LAST_BATCH, (doubt.owner_id,)).fetchone()
            except (psycopg.Error, StoreError) as error:
                if isinstance(error, psycopg.Error) and self._clock.monotonic() < deadline:
                    continue
                raise StoreError(
                    f"the connection to {self.place!r} was lost during a commit, so it is not known whether it is "
                    f"stored: {self._database.explain(error)}",
                    cause=error,
                ) from error
            self._doubt = None
            return row is not None and row[0] >= doubt.batch

    def _connect(self, deadline: float) -> Connection:
        """Return the connection; if it is lost, try to connect until the deadline."""
        while self._db is None or is_lost(self._db):
            try:
                self._db = self._database.connect("writer")
            except StoreError as error:
                if not isinstance(error.__cause__, psycopg.OperationalError) or self._clock.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
        return self._db

    def _register_again(self) -> None:
        """Become a new owner: the old one was given up, and its calls belong to other processes."""
        if self._db is not None:
            self._leases.register(self._db)
            self._appender.note_lost_lease()
        raise StoreError(
            f"this process did not renew its lease at {self.place!r} in time, so other processes have taken over its "
            "calls; nothing was written for them. New calls are accepted again"
        ) from None


class _Batch:
    """Runs the items of one batch in order; consecutive events and statements are collected and written together."""

    def __init__(
        self,
        database: Database,
        appender: PostgresEventAppender,
        notifications: PostgresNotifications,
        db: Connection,
        *,
        is_careful: bool,
    ) -> None:
        self._database = database
        self._appender = appender
        self._notifications = notifications
        self._db = db
        self._is_careful = is_careful
        self._events: list[RunEvent] = []
        self._statements: dict[StatementKind, list[Statement]] = {}
        self._kinds: dict[tuple[Any, ...], StatementKind] = {}  # of the last statement about each row
        self._results: list[ItemResult] = []

    def run(self, items: Sequence[Item]) -> list[ItemResult]:
        """Run all items and write everything but the commit; return the results of the functions."""
        barriers: list[ItemResult] = []
        for item in items:
            if isinstance(item, RunEvent):
                self._events.append(_without_nul(item) if self._is_careful else item)
            elif isinstance(item, Statement):
                self._add(item)
            elif isinstance(item, WriteFunction):
                self._flush()
                self._results.append(self._run_alone(item.future, item.work))
            elif isinstance(item, Barrier):
                barriers.append(ItemResult(item.future))
        self._append_events()
        cursors: list[tuple[psycopg.Cursor[Any], list[Statement]]] = []
        self._appender.finish(self._db, partial(self._execute_all, cursors))
        self._read(cursors)
        return self._results + barriers

    def _add(self, statement: Statement) -> None:
        if self._is_careful:
            self._flush()
            self._results.append(self._run_alone(statement.future, partial(_execute_one, statement)))
            return
        row = statement.kind.row(statement.values)
        if self._kinds.get(row, statement.kind) != statement.kind:  # such as a key whose reservation was cancelled
            self._flush()
        self._kinds[row] = statement.kind
        self._statements.setdefault(statement.kind, []).append(statement)

    def _flush(self) -> None:
        """Write what functions may read."""
        self._append_events()
        self._appender.save_heads(self._db)
        if self._statements:
            cursors: list[tuple[psycopg.Cursor[Any], list[Statement]]] = []
            with self._db.pipeline():
                self._execute_all(cursors)
            self._read(cursors)
            self._statements.clear()
            self._kinds.clear()

    def _append_events(self) -> None:
        if self._events:
            self._appender.append(self._db, self._events)
            self._events = []

    def _execute_all(self, cursors: list[tuple[psycopg.Cursor[Any], list[Statement]]]) -> None:
        """Execute the collected statements by kind, within a pipeline."""
        # Those that return rows wait for them.
        for kind, statements in sorted(self._statements.items(), key=lambda item: item[0].read is not None):
            cursor = self._db.cursor()
            cursor.executemany(
                constant(kind.sql), [each.values for each in statements], returning=kind.read is not None
            )
            cursors.append((cursor, statements))
        position = self._appender.position
        if position is not None:
            self._notifications.add_events(position)

    def _read(self, cursors: list[tuple[psycopg.Cursor[Any], list[Statement]]]) -> None:
        for cursor, statements in cursors:
            for statement in statements:
                rows = cursor.fetchall() if statement.kind.read else []
                cursor.nextset()
                self._results.append(_result_of(statement, rows))

    def _run_alone(self, future: Any, work: Callable[[Connection], Any]) -> ItemResult:
        db = self._db
        try:
            with db.transaction():
                return ItemResult(future, work(db))
        except Exception as exc:
            if isinstance(exc, _CONFLICTS) or is_lost(db):
                raise
            return ItemResult(future, error=self._database.explain(exc) if isinstance(exc, FAULTS) else exc)


def _execute_one(statement: Statement, db: Connection) -> Any:
    cursor = db.execute(constant(statement.kind.sql), statement.values)
    read = statement.kind.read
    return None if read is None else read(cursor.fetchall())


def _result_of(statement: Statement, rows: list[tuple[Any, ...]]) -> ItemResult:
    read = statement.kind.read
    try:
        return ItemResult(statement.future, None if read is None else read(rows))
    except StoreError as error:
        return ItemResult(statement.future, error=error)


def _run_of(event: RunEvent) -> RunName:
    return event.call.tenant, event.call.run_id


def _without_nul(event: RunEvent) -> RunEvent:
    """Escape NUL characters in the names of an event, which PostgreSQL cannot store."""
    call = event.call
    names = {name: getattr(call, name) for name in ("run_id", "call_id", "tool_name", "tenant", "user")}
    if not any("\0" in value for value in names.values()):
        return event
    escaped = {name: value.replace("\0", "\\u0000") for name, value in names.items()}
    return replace(event, call=replace(call, **escaped))
