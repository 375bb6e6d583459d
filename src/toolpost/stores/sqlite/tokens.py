"""Token rows of connected accounts in SQLite: versioned, encrypted, leased for refresh."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

from toolpost.contracts.storage import TokenKey, TokenRow, TokenStatus
from toolpost.stores.records import next_version
from toolpost.stores.sqlite.context import SQLiteContext
from toolpost.stores.token_rows import COLUMNS, encrypt_token, read_or_doubt, read_token

Rows: TypeAlias = list[TokenRow]  # The store's own `list` hides the builtin one.

_THIS = "tenant = ? AND user = ? AND issuer = ? AND resource = ? AND client = ?"
_GET = f"SELECT {COLUMNS} FROM tokens WHERE {_THIS}"  # noqa: S608 - constants, here and below
_LIST = f"""
SELECT {COLUMNS} FROM tokens WHERE (:tenant IS NULL OR tenant = :tenant) AND (:user IS NULL OR user = :user)
ORDER BY tenant, user, issuer, resource, client
"""  # noqa: S608
_VERSION = f"SELECT version FROM tokens WHERE {_THIS}"  # noqa: S608
_WRITE = f"INSERT OR REPLACE INTO tokens ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0)"  # noqa: S608
_STAND = f"SELECT version, status, holder, owner, until FROM tokens WHERE {_THIS}"  # noqa: S608
_LEASE = f"UPDATE tokens SET holder = ?, owner = ?, until = ? WHERE {_THIS}"  # noqa: S608
_DOUBT = f"UPDATE tokens SET status = 'doubtful' WHERE {_THIS}"  # noqa: S608
_END = f"UPDATE tokens SET status = ?, holder = '', owner = '', until = 0 WHERE {_THIS}"  # noqa: S608
_REMOVE = f"DELETE FROM tokens WHERE {_THIS} AND (? IS NULL OR version = ?)"  # noqa: S608


class SQLiteTokenRows:
    """Token rows in SQLite: identity and status in columns, tokens encrypted to their key and version."""

    def __init__(self, shared: SQLiteContext) -> None:
        self._shared = shared

    async def get(self, key: TokenKey) -> TokenRow | None:
        return await self._shared.reader.query(lambda db: self._find(db, key))

    async def list(self, *, tenant: str | None = None, user: str | None = None) -> Rows:
        values = {"tenant": tenant, "user": user}
        return await self._shared.reader.query(
            lambda db: [read_or_doubt(self._shared.cipher, row) for row in db.execute(_LIST, values)]
        )

    async def put(self, key: TokenKey, body: Mapping[str, Any]) -> TokenRow:
        return await self._shared.writer.submit(lambda db: self._write(db, key, body))

    async def swap(self, key: TokenKey, version: int, body: Mapping[str, Any]) -> TokenRow | None:
        def work(db: sqlite3.Connection) -> TokenRow | None:
            row = db.execute(_VERSION, key).fetchone()
            return self._write(db, key, body) if row == (version,) else None

        return await self._shared.writer.submit(work)

    async def take(self, key: TokenKey, version: int, *, holder: str, lease_s: float) -> TokenRow | None:
        return await self._shared.writer.submit(
            partial(self._take, key=key, version=version, holder=holder, lease_s=lease_s)
        )

    async def settle(
        self,
        key: TokenKey,
        version: int,
        *,
        holder: str,
        body: Mapping[str, Any] | None = None,
        status: TokenStatus = "live",
    ) -> TokenRow | None:
        def work(db: sqlite3.Connection) -> TokenRow | None:
            stand = db.execute(_STAND, key).fetchone()
            if stand is None or (stand[0], stand[2]) != (version, holder):
                return None
            if body is not None or status == "revoked":
                return self._write(db, key, body or {}, status)
            db.execute(_END, (status, *key))
            return self._find(db, key)

        return await self._shared.writer.submit(work)

    async def remove(self, key: TokenKey, *, version: int | None = None) -> bool:
        values = (*key, version, version)
        return await self._shared.writer.submit(lambda db: db.execute(_REMOVE, values).rowcount == 1)

    def _take(
        self, db: sqlite3.Connection, *, key: TokenKey, version: int, holder: str, lease_s: float
    ) -> TokenRow | None:
        now = self._shared.clock.wall()
        stand = db.execute(_STAND, key).fetchone()
        if stand is not None and stand[:3] == (version, "live", ""):
            db.execute(_LEASE, (holder, self._shared.owner_id, now + lease_s, *key))
        elif stand is not None and stand[:2] == (version, "live"):
            *_, owner, until = stand
            if until <= now or not self._shared.liveness.alive(owner):  # the lease is lost
                db.execute(_DOUBT, key)
        return self._find(db, key)

    def _write(
        self, db: sqlite3.Connection, key: TokenKey, body: Mapping[str, Any], status: TokenStatus = "live"
    ) -> TokenRow:
        """Write a body as a new version."""
        now = self._shared.clock.wall()
        row = db.execute(_VERSION, key).fetchone()
        version = next_version(now, row[0] if row else 0)
        encrypted = encrypt_token(self._shared.cipher, key, version, body)
        db.execute(_WRITE, (*key, version, status, now, encrypted))
        return TokenRow(key=key, version=version, status=status, body=dict(body), changed_at=now)

    def _find(self, db: sqlite3.Connection, key: TokenKey) -> TokenRow | None:
        row = db.execute(_GET, key).fetchone()
        return read_token(self._shared.cipher, row) if row else None
