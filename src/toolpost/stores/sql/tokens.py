"""Token rows of connected accounts: versioned, encrypted, leased for refresh."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

from toolpost.contracts.storage import TokenKey, TokenRow, TokenStatus
from toolpost.stores.records import next_version
from toolpost.stores.sql.database import SharedDatabase, SQLConnection, where
from toolpost.stores.token_rows import COLUMNS, encrypt_token, read_or_doubt, read_token

Rows: TypeAlias = list[TokenRow]  # The store's own `list` hides the builtin one.

_THIS = 'tenant = :tenant AND "user" = :user AND issuer = :issuer AND resource = :resource AND client = :client'
_SELECT = f"SELECT {COLUMNS} FROM tokens"  # noqa: S608 - constants, here and below
_GET = f"{_SELECT} WHERE {_THIS}"
_ORDER = 'ORDER BY tenant, "user", issuer, resource, client'
_STAND = f"SELECT version, status, holder, owner, until FROM tokens WHERE {_THIS}"  # noqa: S608
_WRITE = f"""
INSERT INTO tokens ({COLUMNS}, owner) VALUES (
    :tenant, :user, :issuer, :resource, :client, :version, :status, :changed_at, :body, '', 0, ''
) ON CONFLICT (tenant, "user", issuer, resource, client) DO UPDATE SET version = excluded.version,
    status = excluded.status, changed_at = excluded.changed_at, body = excluded.body, holder = '', owner = '', until = 0
"""  # noqa: S608
_LEASE = f"UPDATE tokens SET holder = :holder, owner = :owner, until = :until WHERE {_THIS}"  # noqa: S608
_DOUBT = f"UPDATE tokens SET status = 'doubtful' WHERE {_THIS}"  # noqa: S608
_END = f"UPDATE tokens SET status = :status, holder = '', owner = '', until = 0 WHERE {_THIS}"  # noqa: S608
_REMOVE = f"DELETE FROM tokens WHERE {_THIS}"  # noqa: S608


class SQLTokenRows:
    """Token rows: identity and status in columns, tokens encrypted to their key and version."""

    def __init__(self, shared: SharedDatabase) -> None:
        self._shared = shared

    async def get(self, key: TokenKey) -> TokenRow | None:
        return await self._shared.read(lambda db: self._find(db, key))

    async def list(self, *, tenant: str | None = None, user: str | None = None) -> Rows:
        sql = f"{_SELECT} WHERE TRUE{where(tenant=tenant, user=user)} {_ORDER}"
        rows = await self._shared.read(lambda db: db.execute(sql, {"tenant": tenant, "user": user}).fetchall())
        return [read_or_doubt(self._shared.cipher, row) for row in rows]

    async def put(self, key: TokenKey, body: Mapping[str, Any]) -> TokenRow:
        return await self._shared.write(lambda db: self._write(db, key, body))

    async def swap(self, key: TokenKey, version: int, body: Mapping[str, Any]) -> TokenRow | None:
        def work(db: SQLConnection) -> TokenRow | None:
            stand = _lock(db, key)
            return self._write(db, key, body) if stand is not None and stand[0] == version else None

        return await self._shared.write(work)

    async def take(self, key: TokenKey, version: int, *, holder: str, lease_s: float) -> TokenRow | None:
        return await self._shared.write(partial(self._take, key=key, version=version, holder=holder, lease_s=lease_s))

    async def settle(
        self,
        key: TokenKey,
        version: int,
        *,
        holder: str,
        body: Mapping[str, Any] | None = None,
        status: TokenStatus = "live",
    ) -> TokenRow | None:
        def work(db: SQLConnection) -> TokenRow | None:
            stand = _lock(db, key)
            if stand is None or (stand[0], stand[2]) != (version, holder):
                return None
            if body is not None or status == "revoked":
                return self._write(db, key, body or {}, status)
            db.execute(_END, {**key._asdict(), "status": status})
            return self._find(db, key)

        return await self._shared.write(work)

    async def remove(self, key: TokenKey, *, version: int | None = None) -> bool:
        sql, values = _REMOVE + where(version=version), {**key._asdict(), "version": version}
        return await self._shared.write(lambda db: db.execute(sql, values).rowcount == 1)

    def _take(self, db: SQLConnection, *, key: TokenKey, version: int, holder: str, lease_s: float) -> TokenRow | None:
        now = self._shared.clock.wall()
        named = key._asdict()
        stand = _lock(db, key)
        if stand is not None and stand[:3] == (version, "live", ""):
            db.execute(_LEASE, {**named, "holder": holder, "owner": self._shared.owner_id, "until": now + lease_s})
        elif stand is not None and stand[:2] == (version, "live"):
            *_, owner, until = stand
            if until <= now or db.ended([owner]):  # the lease is lost
                db.execute(_DOUBT, named)
        return self._find(db, key)

    def _write(
        self, db: SQLConnection, key: TokenKey, body: Mapping[str, Any], status: TokenStatus = "live"
    ) -> TokenRow:
        """Write a body as a new version."""
        now = self._shared.clock.wall()
        stand = _lock(db, key)
        version = next_version(now, stand[0] if stand else 0)
        encrypted = encrypt_token(self._shared.cipher, key, version, body)
        facts = {"version": version, "status": status, "changed_at": now, "body": encrypted}
        db.execute(_WRITE, {**key._asdict(), **facts})
        return TokenRow(key=key, version=version, status=status, body=dict(body), changed_at=now)

    def _find(self, db: SQLConnection, key: TokenKey) -> TokenRow | None:
        row = db.execute(_GET, key._asdict()).fetchone()
        return read_token(self._shared.cipher, row) if row else None


def _lock(db: SQLConnection, key: TokenKey) -> tuple[Any, ...] | None:
    """Lock a key, also one without a row; return the version, the status and the lease of its row."""
    db.lock(" ".join(("token", *key)))
    stand: tuple[Any, ...] | None = db.execute(_STAND, key._asdict()).fetchone()
    return stand
