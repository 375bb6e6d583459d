"""Keys of the gateway's callers."""

from __future__ import annotations

from typing import TypeAlias

from toolpost.contracts.callers import CallerKey
from toolpost.stores.caller_key_rows import COLUMNS, key_from_row, key_to_row
from toolpost.stores.sql.database import SharedDatabase, SQLConnection, where

Keys: TypeAlias = list[CallerKey]  # The stores' own `list` hides the builtin one.

_NAMES = (*(name.strip(' "') for name in COLUMNS.split(",")), "mac")
_INSERT = f"INSERT INTO caller_keys ({COLUMNS}, mac) VALUES ({', '.join(f':{name}' for name in _NAMES)})"  # noqa: S608 - constants, here and below
_SELECT = f"SELECT {COLUMNS}, mac FROM caller_keys"  # noqa: S608
_FIND = f"{_SELECT} WHERE id = :id"
_REMOVE = "DELETE FROM caller_keys WHERE id = :id AND tenant = :tenant"


class SQLCallerKeys:
    """Keys of callers; every process on the database reads them with each request."""

    def __init__(self, shared: SharedDatabase) -> None:
        self._shared = shared

    async def add(self, key: CallerKey) -> None:
        values = dict(zip(_NAMES, key_to_row(self._shared.key, key), strict=True))

        def work(db: SQLConnection) -> None:
            db.execute(_INSERT, values)

        await self._shared.write(work)

    async def find(self, key_id: str) -> CallerKey | None:
        row = await self._shared.read(lambda db: db.execute(_FIND, {"id": key_id}).fetchone())
        return None if row is None else key_from_row(self._shared.key, row)

    async def list(self, *, tenant: str | None = None) -> Keys:
        sql = f"{_SELECT} WHERE TRUE{where(tenant=tenant)} ORDER BY created_at, id"
        rows = await self._shared.read(lambda db: db.execute(sql, {"tenant": tenant}).fetchall())
        return [key for row in rows if (key := key_from_row(self._shared.key, row)) is not None]

    async def remove(self, key_id: str, *, tenant: str) -> bool:
        values = {"id": key_id, "tenant": tenant}
        return await self._shared.write(lambda db: db.execute(_REMOVE, values).rowcount == 1)
