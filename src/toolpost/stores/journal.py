"""The journal, idempotency keys and cancel requests in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import CancelRequest, JournalEntry, KeyRecord
from toolpost.stores.database import Reader
from toolpost.stores.liveness import Liveness
from toolpost.stores.sealing import RowSealer, readable_rows
from toolpost.stores.writer import Writer

_COLUMNS = "call_id, step, run_id, tool_name, tenant, user, at, owner, call, result"

_RESERVE = """
INSERT INTO keys (tenant, user, key, call_id, tool_name, arguments_hash, at, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_HOLDER = """
SELECT call_id, tool_name, arguments_hash, outcome, owner FROM keys WHERE tenant = ? AND user = ? AND key = ?
"""
_SETTLE = "UPDATE keys SET outcome = ?, at = ? WHERE tenant = ? AND user = ? AND key = ?"
_RELEASE = "DELETE FROM keys WHERE tenant = ? AND user = ? AND key = ? AND outcome IS NULL AND ? IN ('', call_id)"
_OWNERS = """
SELECT tenant FROM events WHERE run_id = :id UNION SELECT tenant FROM journal WHERE call_id = :id
UNION SELECT tenant FROM pending WHERE call_id = :id
"""
_REQUEST = "INSERT OR REPLACE INTO cancels (target_id, tenant, requested_by, at) VALUES (?, ?, ?, ?)"
_REQUESTED = "SELECT target_id, at, tenant FROM cancels WHERE target_id IN (SELECT value FROM json_each(?))"


class SQLiteJournal:
    """Intents and results of calls; an intent is owned by the process that wrote it until that process dies."""

    def __init__(self, writer: Writer, reader: Reader, *, sealer: RowSealer, liveness: Liveness) -> None:
        self._writer = writer
        self._reader = reader
        self._sealer = sealer
        self._liveness = liveness

    async def begin(self, entry: JournalEntry) -> None:
        tenant, user = entry.principal
        call = self._sealer.seal(dict(entry.call), "journal", tenant, user, entry.call_id, entry.step, "call")
        row = (entry.call_id, entry.step, entry.run_id, entry.tool_name, tenant, user, entry.at)
        sql = f"INSERT OR REPLACE INTO journal ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)"  # noqa: S608 - constants
        await self._writer.submit(lambda db: db.execute(sql, (*row, self._liveness.owner_id, call)).close())

    async def finish(self, call_id: str, step: str, result: Any) -> None:
        await self._writer.submit(lambda db: self._finish(db, call_id, step, result))

    async def forget(self, call_id: str, step: str) -> None:
        sql = "DELETE FROM journal WHERE call_id = ? AND step = ?"
        await self._writer.submit(lambda db: db.execute(sql, (call_id, step)).close())

    async def find(self, call_id: str, step: str) -> JournalEntry | None:
        sql = f"SELECT {_COLUMNS} FROM journal WHERE call_id = ? AND step = ?"  # noqa: S608 - constants
        row = await self._reader.query(lambda db: db.execute(sql, (call_id, step)).fetchone())
        return self._entry(row) if row else None

    async def inner(self, call_id: str) -> list[JournalEntry]:
        sql = f"SELECT {_COLUMNS} FROM journal WHERE call_id > ? AND call_id < ? AND step = '' ORDER BY at, rowid"  # noqa: S608 - constants
        rows = await self._reader.query(lambda db: db.execute(sql, (f"{call_id}.", f"{call_id}/")).fetchall())
        return readable_rows(rows, self._entry, lambda row: f"the intent of call {row[0]!r}")

    async def adopt_orphans(self) -> list[JournalEntry]:
        return await self._writer.submit(self._adopt)

    def _finish(self, db: sqlite3.Connection, call_id: str, step: str, result: Any) -> None:
        found = db.execute(
            "SELECT tenant, user FROM journal WHERE call_id = ? AND step = ?", (call_id, step)
        ).fetchone()
        if found is None:
            raise StoreError(f"call {call_id!r}, step {step!r}: a result without an intent; `begin` comes first")
        sealed = self._sealer.seal(result, "journal", *found, call_id, step, "result")
        db.execute("UPDATE journal SET result = ? WHERE call_id = ? AND step = ?", (sealed, call_id, step))

    def _adopt(self, db: sqlite3.Connection) -> list[JournalEntry]:
        """Take over the intents of dead owners in one transaction: each goes to one process. Skip damaged ones."""
        unfinished = "result IS NULL AND step = ''"
        owners = db.execute(f"SELECT DISTINCT owner FROM journal WHERE {unfinished}").fetchall()  # noqa: S608 - constants
        sql = f"UPDATE journal SET owner = ? WHERE owner = ? AND {unfinished} RETURNING {_COLUMNS}"  # noqa: S608 - constants
        rows: list[tuple[Any, ...]] = []
        for (owner,) in owners:
            if not self._liveness.alive(owner):
                rows += db.execute(sql, (self._liveness.owner_id, owner)).fetchall()
        self._liveness.sweep()
        return readable_rows(rows, self._entry, lambda row: f"the intent of call {row[0]!r}")

    def _entry(self, row: tuple[Any, ...]) -> JournalEntry:
        call_id, step, run_id, tool_name, tenant, user, at, owner, call, result = row
        name = ("journal", tenant, user, call_id, step)
        return JournalEntry(
            call_id=call_id,
            step=step,
            run_id=run_id,
            tool_name=tool_name,
            principal=Principal(tenant, user),
            call=self._sealer.open(call, *name, "call"),
            at=at,
            owner=owner,
            done=result is not None,
            result=None if result is None else self._sealer.open(result, *name, "result"),
        )


class SQLiteKeyStore:
    """Idempotency keys by user: reserved by one statement, stored with the outcome of their call."""

    def __init__(self, writer: Writer, *, sealer: RowSealer, liveness: Liveness, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._sealer = sealer
        self._liveness = liveness
        self._clock = clock

    async def reserve(self, principal: Principal, key: str, record: KeyRecord) -> KeyRecord | None:
        row = (*principal, key, record.call_id, record.tool_name, record.arguments_hash)

        def work(db: sqlite3.Connection) -> tuple[Any, ...] | None:
            if db.execute(_RESERVE, (*row, self._clock(), self._liveness.owner_id)).rowcount == 1:
                return None
            holder: tuple[Any, ...] = db.execute(_HOLDER, (*principal, key)).fetchone()
            return holder

        holder = await self._writer.submit(work)
        return None if holder is None else self._record(principal, key, holder)

    async def settle(self, principal: Principal, key: str, outcome: Mapping[str, Any]) -> None:
        sealed = self._sealer.seal(dict(outcome), "keys", *principal, key, "outcome")
        values = (sealed, self._clock(), *principal, key)
        await self._writer.submit(lambda db: db.execute(_SETTLE, values).close())

    async def release(self, principal: Principal, key: str, *, call_id: str = "") -> None:
        values = (*principal, key, call_id)
        await self._writer.submit(lambda db: db.execute(_RELEASE, values).close())

    def _record(self, principal: Principal, key: str, row: tuple[Any, ...]) -> KeyRecord:
        call_id, tool_name, arguments_hash, outcome, owner = row
        return KeyRecord(
            call_id=call_id,
            tool_name=tool_name,
            arguments_hash=arguments_hash,
            outcome=None if outcome is None else self._sealer.open(outcome, "keys", *principal, key, "outcome"),
            owner_alive=self._liveness.alive(owner),
        )


class SQLiteCancelStore:
    """Cancel requests, seen by the process that runs the call; one for a target of other tenants only is ignored."""

    def __init__(self, writer: Writer, reader: Reader, *, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        def work(db: sqlite3.Connection) -> None:
            owners = {owner for (owner,) in db.execute(_OWNERS, {"id": target_id})}
            if tenant is None or not owners or tenant in owners:
                db.execute(_REQUEST, (target_id, tenant or "", by, self._clock()))

        await self._writer.submit(work)

    async def requested(self, target_ids: Sequence[str]) -> dict[str, list[CancelRequest]]:
        wanted = json.dumps(list(target_ids))
        found = await self._reader.query(lambda db: db.execute(_REQUESTED, (wanted,)).fetchall())
        wishes: dict[str, list[CancelRequest]] = {}
        for target_id, at, tenant in found:
            wishes.setdefault(target_id, []).append(CancelRequest(at, tenant or None))
        return wishes
