"""The journal in SQLite: intents before effects, results after."""

from __future__ import annotations

import sqlite3
from typing import Any

from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import JournalEntry
from toolpost.stores.encryption import RowCipher, readable_rows
from toolpost.stores.sqlite.database import Reader
from toolpost.stores.sqlite.liveness import Liveness
from toolpost.stores.sqlite.row_authentication import decrypt_record
from toolpost.stores.sqlite.writer import Writer

_COLUMNS = "call_id, step, run_id, tool_name, tenant, user, at, owner, call, result"
_NAME_OF_INTENT = """
SELECT tenant, user, call_id, step, run_id, tool_name FROM journal WHERE call_id = ? AND step = ?
"""


class SQLiteJournal:
    """Intents and results of calls; an intent is owned by the process that wrote it until that process dies."""

    def __init__(self, writer: Writer, reader: Reader, *, cipher: RowCipher, liveness: Liveness) -> None:
        self._writer = writer
        self._reader = reader
        self._cipher = cipher
        self._liveness = liveness

    async def begin(self, entry: JournalEntry) -> None:
        tenant, user = entry.principal
        name = ("journal", tenant, user, entry.call_id, entry.step, entry.run_id, entry.tool_name)
        call = self._cipher.encrypt(dict(entry.call), *name, "call")
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
        found = db.execute(_NAME_OF_INTENT, (call_id, step)).fetchone()
        if found is None:
            raise StoreError(f"call {call_id!r}, step {step!r}: a result without an intent; `begin` comes first")
        encrypted = self._cipher.encrypt(result, "journal", *found, "result")
        db.execute("UPDATE journal SET result = ? WHERE call_id = ? AND step = ?", (encrypted, call_id, step))

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
        name = ("journal", tenant, user, call_id, step, run_id, tool_name)
        return JournalEntry(
            call_id=call_id,
            step=step,
            run_id=run_id,
            tool_name=tool_name,
            principal=Principal(tenant, user),
            call=decrypt_record(self._cipher, call, *name, "call"),
            at=at,
            owner=owner,
            done=result is not None,
            result=None if result is None else decrypt_record(self._cipher, result, *name, "result"),
        )
