"""Keys of the gateway's callers in SQLite.

Each row has a MAC over its columns. A row with an invalid MAC was written without the key of the log: it is logged and
treated as missing.
"""

from __future__ import annotations

import hmac
import logging
import sqlite3
from functools import lru_cache
from typing import Any, TypeAlias

from toolpost.contracts.callers import SCOPES, CallerKey
from toolpost.contracts.principal import Principal
from toolpost.stores.chain import LogKey
from toolpost.stores.sqlite.context import SQLiteContext

Keys: TypeAlias = list[CallerKey]  # The stores' own `list` hides the builtin one.

Row: TypeAlias = tuple[Any, ...]

COLUMNS = "id, name, tenant, user, scopes, digest, created_at, created_by, expires_at, interactive, person"
_INSERT = f"INSERT INTO caller_keys ({COLUMNS}, mac) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants, here and below
_FIND = f"SELECT {COLUMNS}, mac FROM caller_keys WHERE id = ?"  # noqa: S608
_LIST = f"SELECT {COLUMNS}, mac FROM caller_keys WHERE :tenant IS NULL OR tenant = :tenant ORDER BY created_at, id"  # noqa: S608
_REMOVE = "DELETE FROM caller_keys WHERE id = ? AND tenant = ?"
_log = logging.getLogger("toolpost.stores")


class SQLiteCallerKeys:
    """Keys of callers; every process on the folder reads them with each request."""

    def __init__(self, shared: SQLiteContext) -> None:
        self._shared = shared

    async def add(self, key: CallerKey) -> None:
        row = _row(key)
        values = (*row, row_mac(self._shared.key, row))
        await self._shared.writer.submit(lambda db: db.execute(_INSERT, values).close())

    async def find(self, key_id: str) -> CallerKey | None:
        row = await self._shared.reader.query(lambda db: db.execute(_FIND, (key_id,)).fetchone())
        return None if row is None else self._read(row)

    async def list(self, *, tenant: str | None = None) -> Keys:
        rows = await self._shared.reader.query(lambda db: db.execute(_LIST, {"tenant": tenant}).fetchall())
        return [key for row in rows if (key := self._read(row)) is not None]

    async def remove(self, key_id: str, *, tenant: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            return db.execute(_REMOVE, (key_id, tenant)).rowcount == 1

        return await self._shared.writer.submit(work)

    def _read(self, row: Row) -> CallerKey | None:
        """Return the key of a row; None if its MAC is invalid."""
        if is_authentic(self._shared.key, row):
            return _key(row)
        _report_once(str(row[0]), str(row[2]))
        return None


def row_mac(key: LogKey, row: Row) -> bytes:
    """Return the MAC over the `COLUMNS` of a key."""
    return key.mac_fields("caller key", row)


def is_authentic(key: LogKey, row: Row) -> bool:
    """Return whether the MAC at the end of a row matches the columns before it."""
    *columns, mac = row
    return isinstance(mac, bytes) and hmac.compare_digest(mac, row_mac(key, tuple(columns)))


@lru_cache(maxsize=1000)  # a client may send the key often
def _report_once(key_id: str, tenant: str) -> None:
    _log.error(
        "key %r of the tenant %r was changed or added outside of toolpost and is refused; "
        "`toolpost runs verify` lists all such rows, `toolpost keys revoke` removes the key",
        key_id,
        tenant,
    )


def _row(key: CallerKey) -> Row:
    """Return the columns of a key as SQLite returns them: the MAC must not depend on the types that were passed."""
    scopes = " ".join(scope for scope in SCOPES if scope in key.scopes)
    expires_at = None if key.expires_at is None else float(key.expires_at)
    facts = (float(key.created_at), key.created_by, expires_at, int(key.interactive), int(key.person))
    return key.id, key.name, *key.principal, scopes, key.digest, *facts


def _key(row: Row) -> CallerKey:
    key_id, name, tenant, user, scopes, digest, created_at, created_by, expires_at, interactive, person, _ = row
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
        person=bool(person),
    )
