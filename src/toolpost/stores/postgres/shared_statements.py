"""The statements that SQLite and PostgreSQL share, on PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, LiteralString, TypeVar

from toolpost.contracts.clock import Clock
from toolpost.stores.chain import LogKey
from toolpost.stores.encryption import RowCipher
from toolpost.stores.postgres.context import PostgresContext
from toolpost.stores.postgres.database import Connection, Cursor, constant
from toolpost.stores.run_chains import RunName
from toolpost.stores.sql.database import NO_VALUES, SQLConnection

T = TypeVar("T")
_NAME = re.compile(r"(?<!:):(\w+)")  # not that of a cast
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


class PostgresStatements:
    """A connection of PostgreSQL that runs shared statements."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def execute(self, sql: str, values: Mapping[str, Any] = NO_VALUES) -> Cursor:
        """Run one shared statement."""
        return self._db.execute(_translate(sql), values)


class PostgresDatabase(PostgresStatements):
    """A connection in a transaction of the writer, or for queries."""

    def __init__(self, db: Connection, context: PostgresContext) -> None:
        super().__init__(db)
        self._context = context

    def lock(self, name: str) -> None:
        """Wait until no other transaction has locked this name, and lock it until the end of this one."""
        self._db.execute(_LOCK, (name,))

    def ended(self, owner_ids: Iterable[str]) -> list[str]:
        """Return the owners that have ended, and prevent them from writing."""
        return self._context.liveness.ended(self._db, owner_ids)

    def publish(self) -> None:
        """Tell other processes, after the transaction is committed, that it changed pending actions or requests."""
        self._context.notifications.add_records()

    def secure_deletes(self) -> AbstractContextManager[None]:
        """Do nothing: a server overwrites deleted rows when it needs their place."""
        return nullcontext()

    def save_heads(self) -> None:
        """Write the heads of runs that this transaction has changed."""
        self._context.appender.save_heads(self._db)

    def remove_runs(self, removed: Iterable[tuple[RunName, bytes]]) -> None:
        """Remove deleted runs from the ledger and the cache."""
        self._context.appender.remove_runs(removed)

    def rename_user(self, runs: Iterable[RunName], user: str) -> None:
        """Change the user of runs."""
        self._context.appender.rename_user(self._db, runs, user)


class SharedPostgres:
    """A PostgreSQL database, for the parts that all databases share."""

    def __init__(self, context: PostgresContext) -> None:
        self.cipher: RowCipher = context.cipher
        self.clock: Clock = context.clock
        self.key: LogKey = context.key
        self._context = context

    @property
    def owner_id(self) -> str:
        return self._context.owner_id

    async def read(self, work: Callable[[SQLConnection], T]) -> T:
        """Run queries on a reader."""
        return await self._context.reader.query(lambda db: work(PostgresDatabase(db, self._context)))

    async def write(self, work: Callable[[SQLConnection], T]) -> T:
        """Run a function in the next transaction of the writer."""
        return await self._context.writer.submit(lambda db: work(PostgresDatabase(db, self._context)))


@lru_cache(maxsize=500)
def _translate(sql: str) -> LiteralString:
    """Turn named parameters into those of psycopg; `rowid` is the column that numbers rows as they were inserted."""
    return constant(_NAME.sub(r"%(\1)s", sql.replace("%", "%%")).replace("rowid", "nr"))
