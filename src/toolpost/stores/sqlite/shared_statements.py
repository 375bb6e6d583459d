"""The statements that SQLite and PostgreSQL share, on SQLite."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from toolpost.stores.sql.database import NO_VALUES, SQLConnection
from toolpost.stores.sqlite.database import secure_delete

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from toolpost.stores.run_chains import RunName
    from toolpost.stores.sqlite.context import SQLiteContext

T = TypeVar("T")
_ANY = re.compile(r"= ANY\((:\w+)\)")


class SQLiteStatements:
    """A connection of SQLite that runs shared statements."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def execute(self, sql: str, values: Mapping[str, Any] = NO_VALUES) -> sqlite3.Cursor:
        """Run one shared statement."""
        return self._db.execute(_translate(sql), {name: _to_column(value) for name, value in values.items()})


class SQLiteDatabase(SQLiteStatements):
    """A connection of a store: one transaction at a time writes, so rows and names need no locks."""

    def __init__(self, db: sqlite3.Connection, context: SQLiteContext) -> None:
        super().__init__(db)
        self._context = context

    def lock(self, name: str) -> None:
        """Do nothing."""

    def ended(self, owner_ids: Iterable[str]) -> list[str]:
        """Return the owners whose processes have ended."""
        return [owner_id for owner_id in owner_ids if not self._context.liveness.alive(owner_id)]

    def publish(self) -> None:
        """Do nothing: other processes poll."""

    def secure_deletes(self) -> AbstractContextManager[None]:
        """Overwrite deleted data with zeros instead of leaving it in free pages."""
        return secure_delete(self._db)

    def save_heads(self) -> None:
        """Write the heads of runs that this transaction has changed."""
        self._context.appender.save_heads(self._db)

    def remove_runs(self, removed: Iterable[tuple[RunName, bytes]]) -> None:
        """Remove deleted runs from the ledger and the cache."""
        self._context.appender.remove_runs(removed)

    def rename_user(self, runs: Iterable[RunName], user: str) -> None:
        """Change the user of runs."""
        self._context.appender.rename_user(self._db, runs, user)


class SharedSQLite:
    """The database of a data folder, for the parts that all databases share."""

    def __init__(self, context: SQLiteContext) -> None:
        self.cipher = context.cipher
        self.clock = context.clock
        self.key = context.key
        self.owner_id = context.owner_id
        self._context = context

    async def read(self, work: Callable[[SQLConnection], T]) -> T:
        """Run queries on the reader."""
        return await self._context.reader.query(lambda db: work(self.database(db)))

    async def write(self, work: Callable[[SQLConnection], T]) -> T:
        """Run a function in the next transaction of the writer."""
        return await self._context.writer.submit(lambda db: work(self.database(db)))

    def database(self, db: sqlite3.Connection) -> SQLiteDatabase:
        """Return a connection for shared statements."""
        return SQLiteDatabase(db, self._context)


@lru_cache(maxsize=500)
def _translate(sql: str) -> str:
    return _ANY.sub(r"IN (SELECT value FROM json_each(\1))", sql).replace("FOR UPDATE", "").replace("strpos(", "instr(")


def _to_column(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple) else value
