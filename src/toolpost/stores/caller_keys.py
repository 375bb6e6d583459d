"""Keys of the gateway's callers, in SQLite and in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from toolpost.contracts.callers import SCOPES, CallerKey
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:  # the store in memory, which shares this module, opens no database
    import sqlite3

    from toolpost.stores.database import Reader
    from toolpost.stores.writer import Writer

Keys: TypeAlias = list[CallerKey]  # The stores' own `list` hides the builtin one.

_COLUMNS = "id, name, tenant, user, scopes, digest, created_at, created_by, expires_at, interactive"
_INSERT = f"INSERT INTO caller_keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants, here and below
_FIND = f"SELECT {_COLUMNS} FROM caller_keys WHERE id = ?"  # noqa: S608
_LIST = f"SELECT {_COLUMNS} FROM caller_keys WHERE :tenant IS NULL OR tenant = :tenant ORDER BY created_at, id"  # noqa: S608
_REMOVE = "DELETE FROM caller_keys WHERE id = ? AND tenant = ?"


class SQLiteCallerKeys:
    """Keys of callers; every process on the folder sees a new or revoked key at its next request."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def add(self, key: CallerKey) -> None:
        scopes = " ".join(scope for scope in SCOPES if scope in key.scopes)
        facts = (key.created_at, key.created_by, key.expires_at, key.interactive)
        row = (key.id, key.name, *key.principal, scopes, key.digest, *facts)
        await self._writer.submit(lambda db: db.execute(_INSERT, row).close())

    async def find(self, key_id: str) -> CallerKey | None:
        row = await self._reader.query(lambda db: db.execute(_FIND, (key_id,)).fetchone())
        return None if row is None else _key(row)

    async def list(self, *, tenant: str | None = None) -> Keys:
        rows = await self._reader.query(lambda db: db.execute(_LIST, {"tenant": tenant}).fetchall())
        return [_key(row) for row in rows]

    async def remove(self, key_id: str, *, tenant: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            return db.execute(_REMOVE, (key_id, tenant)).rowcount == 1

        return await self._writer.submit(work)


def _key(row: tuple[Any, ...]) -> CallerKey:
    key_id, name, tenant, user, scopes, digest, created_at, created_by, expires_at, interactive = row
    granted = scopes.split()
    return CallerKey(
        id=key_id,
        name=name,
        principal=Principal(tenant, user),
        scopes=frozenset(scope for scope in SCOPES if scope in granted),
        digest=bytes(digest),
        created_at=created_at,
        created_by=created_by,
        expires_at=expires_at,
        interactive=bool(interactive),
    )


class MemoryCallerKeys:
    """Keys of callers for as long as the process lives."""

    def __init__(self) -> None:
        self.keys: dict[str, CallerKey] = {}

    async def add(self, key: CallerKey) -> None:
        self.keys[key.id] = key

    async def find(self, key_id: str) -> CallerKey | None:
        return self.keys.get(key_id)

    async def list(self, *, tenant: str | None = None) -> Keys:
        keys = [key for key in self.keys.values() if tenant is None or key.principal.tenant == tenant]
        return sorted(keys, key=lambda key: (key.created_at, key.id))

    async def remove(self, key_id: str, *, tenant: str) -> bool:
        key = self.keys.get(key_id)
        if key is None or key.principal.tenant != tenant:
            return False
        del self.keys[key_id]
        return True
