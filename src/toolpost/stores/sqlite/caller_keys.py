"""Keys of the gateway's callers, in SQLite and in memory.

A row in SQLite has a MAC over all its columns. One that does not verify was written by somebody without the key of the
log: it is logged and counts as missing.
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
from toolpost.stores.sqlite.database import Reader
from toolpost.stores.sqlite.writer import Writer

Keys: TypeAlias = list[CallerKey]  # The stores' own `list` hides the builtin one.

Row: TypeAlias = tuple[Any, ...]

COLUMNS = "id, name, tenant, user, scopes, digest, created_at, created_by, expires_at, interactive"
_INSERT = f"INSERT INTO caller_keys ({COLUMNS}, mac) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants, here and below
_FIND = f"SELECT {COLUMNS}, mac FROM caller_keys WHERE id = ?"  # noqa: S608
_LIST = f"SELECT {COLUMNS}, mac FROM caller_keys WHERE :tenant IS NULL OR tenant = :tenant ORDER BY created_at, id"  # noqa: S608
_REMOVE = "DELETE FROM caller_keys WHERE id = ? AND tenant = ?"
_log = logging.getLogger("toolpost.stores")


class SQLiteCallerKeys:
    """Keys of callers; every process on the folder sees a new or revoked key at its next request."""

    def __init__(self, writer: Writer, reader: Reader, *, key: LogKey) -> None:
        self._writer = writer
        self._reader = reader
        self._key = key

    async def add(self, key: CallerKey) -> None:
        row = _row(key)
        values = (*row, row_mac(self._key, row))
        await self._writer.submit(lambda db: db.execute(_INSERT, values).close())

    async def find(self, key_id: str) -> CallerKey | None:
        row = await self._reader.query(lambda db: db.execute(_FIND, (key_id,)).fetchone())
        return None if row is None else self._read(row)

    async def list(self, *, tenant: str | None = None) -> Keys:
        rows = await self._reader.query(lambda db: db.execute(_LIST, {"tenant": tenant}).fetchall())
        return [key for row in rows if (key := self._read(row)) is not None]

    async def remove(self, key_id: str, *, tenant: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            return db.execute(_REMOVE, (key_id, tenant)).rowcount == 1

        return await self._writer.submit(work)

    def _read(self, row: Row) -> CallerKey | None:
        """Return the key of a row; None where its MAC does not verify."""
        if is_authentic(self._key, row):
            return _key(row)
        _report_once(str(row[0]), str(row[2]))
        return None


def row_mac(key: LogKey, row: Row) -> bytes:
    """Return the MAC over the `COLUMNS` of a key."""
    return key.mac_fields("caller key", row)


def is_authentic(key: LogKey, row: Row) -> bool:
    """Return whether the MAC at the end of a row is that over the columns before it."""
    *columns, mac = row
    return isinstance(mac, bytes) and hmac.compare_digest(mac, row_mac(key, tuple(columns)))


@lru_cache(maxsize=1000)  # whoever sends the key may send it often
def _report_once(key_id: str, tenant: str) -> None:
    _log.error(
        "key %r of the tenant %r was changed or added outside of toolpost and is refused; "
        "`toolpost runs verify` names all such rows, `toolpost keys revoke` removes the key",
        key_id,
        tenant,
    )


def _row(key: CallerKey) -> Row:
    """Return the columns of a key as SQLite gives them back: a MAC over them must not depend on how they were given."""
    scopes = " ".join(scope for scope in SCOPES if scope in key.scopes)
    expires_at = None if key.expires_at is None else float(key.expires_at)
    facts = (float(key.created_at), key.created_by, expires_at, int(key.interactive))
    return key.id, key.name, *key.principal, scopes, key.digest, *facts


def _key(row: Row) -> CallerKey:
    key_id, name, tenant, user, scopes, digest, created_at, created_by, expires_at, interactive, _ = row
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
