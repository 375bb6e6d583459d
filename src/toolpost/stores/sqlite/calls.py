"""Records of calls in SQLite: the journal, idempotency keys and requests to cancel."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import CancelRequest, IdempotencyRecord, JournalEntry
from toolpost.stores.call_rows import JOURNAL, KEY, read_cancels, read_entries, read_entry, read_key
from toolpost.stores.sqlite.context import SQLiteContext
from toolpost.stores.topics import CANCELS

_NAME_OF_INTENT = """
SELECT tenant, user, call_id, step, run_id, tool_name FROM journal WHERE call_id = ? AND step = ?
"""
_RESERVE = """
INSERT INTO keys (tenant, user, key, call_id, tool_name, arguments_hash, at, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_HOLDER = f"SELECT {KEY} FROM keys WHERE tenant = ? AND user = ? AND key = ?"  # noqa: S608 - constants, here and below
_CALL_OF_KEY = f"SELECT key, {KEY} FROM keys WHERE tenant = ? AND user = ? AND call_id = ?"  # noqa: S608
_SETTLE = "UPDATE keys SET outcome = ?, at = ? WHERE tenant = ? AND user = ? AND key = ?"
_RELEASE = "DELETE FROM keys WHERE tenant = ? AND user = ? AND key = ? AND outcome IS NULL AND ? IN ('', call_id)"
_NAME_OF_KEY = """
SELECT tenant, user, key, call_id, tool_name, arguments_hash FROM keys WHERE tenant = ? AND user = ? AND key = ?
"""
_OWNERS = """
SELECT tenant FROM runs WHERE run_id = :id UNION SELECT tenant FROM journal WHERE call_id = :id
UNION SELECT tenant FROM pending WHERE call_id = :id
"""
_REQUEST = "INSERT OR REPLACE INTO cancels (target_id, tenant, requested_by, at) VALUES (?, ?, ?, ?)"
_REQUESTED = "SELECT target_id, at, tenant FROM cancels WHERE target_id IN (SELECT value FROM json_each(?))"


class SQLiteJournal:
    """Intents and results of calls; an intent belongs to the process that wrote it until that process ends."""

    def __init__(self, shared: SQLiteContext) -> None:
        self._shared = shared

    @property
    def owner_id(self) -> str:
        return self._shared.owner_id

    async def is_alive(self, owner_id: str) -> bool:
        return self._shared.liveness.alive(owner_id)

    async def begin(self, entry: JournalEntry) -> None:
        tenant, user = entry.principal
        name = ("journal", tenant, user, entry.call_id, entry.step, entry.run_id, entry.tool_name)
        call = self._shared.cipher.encrypt(dict(entry.call), *name, "call")
        row = (entry.call_id, entry.step, entry.run_id, entry.tool_name, tenant, user, entry.at)
        sql = f"INSERT OR REPLACE INTO journal ({JOURNAL}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)"  # noqa: S608 - constants
        await self._shared.writer.submit(lambda db: db.execute(sql, (*row, self._shared.owner_id, call)).close())

    async def finish(self, call_id: str, step: str, result: Any) -> None:
        await self._shared.writer.submit(lambda db: self._finish(db, call_id, step, result))

    async def forget(self, call_id: str, step: str) -> None:
        sql = "DELETE FROM journal WHERE call_id = ? AND step = ?"
        await self._shared.writer.submit(lambda db: db.execute(sql, (call_id, step)).close())

    async def find(self, call_id: str, step: str) -> JournalEntry | None:
        sql = f"SELECT {JOURNAL} FROM journal WHERE call_id = ? AND step = ?"  # noqa: S608 - constants
        row = await self._shared.reader.query(lambda db: db.execute(sql, (call_id, step)).fetchone())
        return read_entry(self._shared.cipher, row) if row else None

    async def inner(self, call_id: str) -> list[JournalEntry]:
        sql = f"SELECT {JOURNAL} FROM journal WHERE call_id > ? AND call_id < ? AND step = '' ORDER BY at, rowid"  # noqa: S608 - constants
        rows = await self._shared.reader.query(lambda db: db.execute(sql, (f"{call_id}.", f"{call_id}/")).fetchall())
        return read_entries(self._shared.cipher, rows)

    async def adopt_orphans(self) -> list[JournalEntry]:
        return await self._shared.writer.submit(self._adopt)

    def _finish(self, db: sqlite3.Connection, call_id: str, step: str, result: Any) -> None:
        found = db.execute(_NAME_OF_INTENT, (call_id, step)).fetchone()
        if found is None:
            raise StoreError(f"call {call_id!r}, step {step!r}: a result without an intent; `begin` comes first")
        encrypted = self._shared.cipher.encrypt(result, "journal", *found, "result")
        db.execute("UPDATE journal SET result = ? WHERE call_id = ? AND step = ?", (encrypted, call_id, step))

    def _adopt(self, db: sqlite3.Connection) -> list[JournalEntry]:
        """Adopt the intents of owners that have ended, in one transaction; skip damaged ones."""
        unfinished = "result IS NULL AND step = ''"
        owners = db.execute(f"SELECT DISTINCT owner FROM journal WHERE {unfinished}").fetchall()  # noqa: S608 - constants
        sql = f"UPDATE journal SET owner = ? WHERE owner = ? AND {unfinished} RETURNING {JOURNAL}"  # noqa: S608 - constants
        rows: list[tuple[Any, ...]] = []
        for (owner,) in owners:
            if not self._shared.liveness.alive(owner):
                rows += db.execute(sql, (self._shared.owner_id, owner)).fetchall()
        self._shared.liveness.sweep()
        return read_entries(self._shared.cipher, rows)


class SQLiteIdempotencyStore:
    """Idempotency keys by user: reserved by one statement, stored with the outcome of their call."""

    def __init__(self, shared: SQLiteContext) -> None:
        self._shared = shared

    async def reserve(self, principal: Principal, key: str, record: IdempotencyRecord) -> IdempotencyRecord | None:
        row = (*principal, key, record.call_id, record.tool_name, record.arguments_hash)

        def work(db: sqlite3.Connection) -> tuple[Any, ...] | None:
            if db.execute(_RESERVE, (*row, self._shared.clock.wall(), self._shared.owner_id)).rowcount == 1:
                return None
            holder: tuple[Any, ...] = db.execute(_HOLDER, (*principal, key)).fetchone()
            return holder

        holder = await self._shared.writer.submit(work)
        return None if holder is None else self._read(principal, key, holder)

    async def find(self, principal: Principal, call_id: str) -> IdempotencyRecord | None:
        row = await self._shared.reader.query(lambda db: db.execute(_CALL_OF_KEY, (*principal, call_id)).fetchone())
        return None if row is None else self._read(principal, row[0], row[1:])

    async def settle(self, principal: Principal, key: str, outcome: Mapping[str, Any]) -> None:
        def work(db: sqlite3.Connection) -> None:
            found = db.execute(_NAME_OF_KEY, (*principal, key)).fetchone()
            if found is not None:
                encrypted = self._shared.cipher.encrypt(dict(outcome), "keys", *found, "outcome")
                db.execute(_SETTLE, (encrypted, self._shared.clock.wall(), *principal, key)).close()

        await self._shared.writer.submit(work)

    async def release(self, principal: Principal, key: str, *, call_id: str = "") -> None:
        values = (*principal, key, call_id)
        await self._shared.writer.submit(lambda db: db.execute(_RELEASE, values).close())

    def _read(self, principal: Principal, key: str, row: tuple[Any, ...]) -> IdempotencyRecord:
        is_alive = self._shared.liveness.alive(row[-1])
        return read_key(self._shared.cipher, principal, key, row, is_alive=is_alive)


class SQLiteCancelStore:
    """Cancel requests; a request for a target that only other tenants have is ignored."""

    def __init__(self, shared: SQLiteContext) -> None:
        self._shared = shared

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        def work(db: sqlite3.Connection) -> None:
            self._shared.appender.save_heads(db)  # including a run that began in this transaction
            owners = {owner for (owner,) in db.execute(_OWNERS, {"id": target_id})}
            if tenant is None or not owners or tenant in owners:
                db.execute(_REQUEST, (target_id, tenant or "", by, self._shared.clock.wall()))

        await self._shared.writer.submit(work)
        self._shared.changes.notify((CANCELS,))

    async def requested(self, target_ids: Sequence[str]) -> dict[str, list[CancelRequest]]:
        wanted = json.dumps(list(target_ids))
        found = await self._shared.reader.query(lambda db: db.execute(_REQUESTED, (wanted,)).fetchall())
        return read_cancels(found)

    async def wait(self, after: int, *, timeout_s: float) -> int:
        newest: int = (await self._shared.changes.wait({CANCELS: after}, timeout_s=timeout_s))[CANCELS]
        return newest
