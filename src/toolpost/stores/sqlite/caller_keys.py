"""Keys of the gateway's callers in SQLite."""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from toolpost.contracts.callers import CallerKey
from toolpost.stores.caller_key_rows import COLUMNS, key_from_row, key_to_row
from toolpost.stores.sqlite.context import SQLiteContext

Keys: TypeAlias = list[CallerKey]  # The stores' own `list` hides the builtin one.

_INSERT = f"INSERT INTO caller_keys ({COLUMNS}, mac) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants, here and below
_FIND = f"SELECT {COLUMNS}, mac FROM caller_keys WHERE id = ?"  # noqa: S608
_LIST = f"SELECT {COLUMNS}, mac FROM caller_keys WHERE :tenant IS NULL OR tenant = :tenant ORDER BY created_at, id"  # noqa: S608
_REMOVE = "DELETE FROM caller_keys WHERE id = ? AND tenant = ?"


class SQLiteCallerKeys:
    """Keys of callers; every process on the folder reads them with each request."""

    def __init__(self, shared: SQLiteContext) -> None:
        self._shared = shared

    async def add(self, key: CallerKey) -> None:
        values = key_to_row(self._shared.key, key)
        await self._shared.writer.submit(lambda db: db.execute(_INSERT, values).close())

    async def find(self, key_id: str) -> CallerKey | None:
        row = await self._shared.reader.query(lambda db: db.execute(_FIND, (key_id,)).fetchone())
        return None if row is None else key_from_row(self._shared.key, row)

    async def list(self, *, tenant: str | None = None) -> Keys:
        rows = await self._shared.reader.query(lambda db: db.execute(_LIST, {"tenant": tenant}).fetchall())
        return [key for row in rows if (key := key_from_row(self._shared.key, row)) is not None]

    async def remove(self, key_id: str, *, tenant: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            return db.execute(_REMOVE, (key_id, tenant)).rowcount == 1

        return await self._shared.writer.submit(work)
