"""Planner state in SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence

from toolpost.stores.sqlite.context import SQLiteContext
from toolpost.stores.state import StateRecord

_ROW = "INTO state (kind, key, item, body, owner, until) VALUES (?, ?, ?, ?, ?, ?)"


class SQLiteStateTable:
    """State records in SQLite."""

    def __init__(self, shared: SQLiteContext) -> None:
        self._shared = shared

    async def put(self, kind: str, key: str, item: str, record: StateRecord) -> None:
        sql = f"INSERT OR REPLACE {_ROW}"
        await self._shared.writer.submit(lambda db: db.execute(sql, (kind, key, item, *record)).close())

    async def add(self, kind: str, key: str, item: str, record: StateRecord) -> bool:
        sql = f"INSERT OR IGNORE {_ROW}"
        return await self._shared.writer.submit(lambda db: db.execute(sql, (kind, key, item, *record)).rowcount) == 1

    async def all(self, kind: str, key: str) -> list[tuple[str, bytes]]:
        sql = "SELECT item, body FROM state WHERE kind = ? AND key = ? ORDER BY item"
        return await self._shared.reader.query(lambda db: db.execute(sql, (kind, key)).fetchall())

    async def replace(self, kind: str, key: str, item: str, record: StateRecord) -> None:
        sql = "UPDATE state SET body = ?, owner = ?, until = ? WHERE kind = ? AND key = ? AND item = ?"
        await self._shared.writer.submit(lambda db: db.execute(sql, (*record, kind, key, item)).close())

    async def of_kind(self, kind: str) -> list[tuple[str, str, bytes]]:
        sql = "SELECT key, item, body FROM state WHERE kind = ?"
        return await self._shared.reader.query(lambda db: db.execute(sql, (kind,)).fetchall())

    async def drop_expired(self, kinds: Sequence[str], *, before: float) -> None:
        sql = "DELETE FROM state WHERE until < ? AND kind IN (SELECT value FROM json_each(?))"
        await self._shared.writer.submit(lambda db: db.execute(sql, (before, json.dumps(kinds))).close())

    async def delete(self, kind: str, keys: Sequence[str]) -> None:
        sql = "DELETE FROM state WHERE kind = ? AND key IN (SELECT value FROM json_each(?))"
        await self._shared.writer.submit(lambda db: db.execute(sql, (kind, json.dumps(keys))).close())
