"""Planner state, console sessions and tickets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolpost.stores.sql.database import SharedDatabase, SQLConnection
from toolpost.stores.state import StateRecord

_INSERT = """
INSERT INTO state (kind, key, item, body, owner, until) VALUES (:kind, :key, :item, :body, :owner, :until)
ON CONFLICT
"""
_ADD = f"{_INSERT} DO NOTHING"
_PUT = f"{_INSERT} (kind, key, item) DO UPDATE SET body = excluded.body, owner = excluded.owner, until = excluded.until"
_REPLACE = """
UPDATE state SET body = :body, owner = :owner, until = :until WHERE kind = :kind AND key = :key AND item = :item
"""
_ALL = "SELECT item, body FROM state WHERE kind = :kind AND key = :key ORDER BY item"
_OF_KIND = "SELECT key, item, body FROM state WHERE kind = :kind"
_DROP_EXPIRED = "DELETE FROM state WHERE until < :before AND kind = ANY(:kinds)"
_DELETE = "DELETE FROM state WHERE kind = :kind AND key = ANY(:keys)"


class SQLStateTable:
    """Implements `StateTable` in a database."""

    def __init__(self, shared: SharedDatabase) -> None:
        self._shared = shared

    async def put(self, kind: str, key: str, item: str, record: StateRecord) -> None:
        await self._write(_PUT, _values(kind, key, item, record))

    async def add(self, kind: str, key: str, item: str, record: StateRecord) -> bool:
        return await self._write(_ADD, _values(kind, key, item, record)) == 1

    async def all(self, kind: str, key: str) -> list[tuple[str, bytes]]:
        values = {"kind": kind, "key": key}
        return await self._shared.read(lambda db: db.execute(_ALL, values).fetchall())

    async def replace(self, kind: str, key: str, item: str, record: StateRecord) -> None:
        await self._write(_REPLACE, _values(kind, key, item, record))

    async def of_kind(self, kind: str) -> list[tuple[str, str, bytes]]:
        return await self._shared.read(lambda db: db.execute(_OF_KIND, {"kind": kind}).fetchall())

    async def drop_expired(self, kinds: Sequence[str], *, before: float) -> None:
        await self._write(_DROP_EXPIRED, {"before": before, "kinds": list(kinds)})

    async def delete(self, kind: str, keys: Sequence[str]) -> None:
        await self._write(_DELETE, {"kind": kind, "keys": list(keys)})

    async def _write(self, sql: str, values: dict[str, Any]) -> int:
        def work(db: SQLConnection) -> int:
            return db.execute(sql, values).rowcount

        return await self._shared.write(work)


def _values(kind: str, key: str, item: str, record: StateRecord) -> dict[str, Any]:
    return {"kind": kind, "key": key, "item": item, **record._asdict()}
