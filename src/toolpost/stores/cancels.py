"""Wishes to cancel in SQLite, seen by whichever process runs the call."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence

from toolpost.contracts.storage import CancelWish
from toolpost.stores.reader import Reader
from toolpost.stores.writer import Writer

_FOREIGN = """
SELECT 1 FROM runs WHERE run_id = :id AND tenant <> :tenant
UNION ALL SELECT 1 FROM journal WHERE call_id = :id AND tenant <> :tenant
UNION ALL SELECT 1 FROM pending WHERE call_id = :id AND tenant <> :tenant
LIMIT 1
"""
_REQUEST = "INSERT OR REPLACE INTO cancels (target_id, requested_by, at, tenant) VALUES (?, ?, ?, ?)"
_REQUESTED = "SELECT target_id, at, tenant FROM cancels WHERE target_id IN (SELECT value FROM json_each(?))"


class SQLiteCancelStore:
    """A wish for what is known to belong to another tenant is not kept."""

    def __init__(self, writer: Writer, reader: Reader, *, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        def work(db: sqlite3.Connection) -> None:
            foreign = tenant is not None and db.execute(_FOREIGN, {"id": target_id, "tenant": tenant}).fetchone()
            if not foreign:
                db.execute(_REQUEST, (target_id, by, self._clock(), tenant))

        await self._writer.submit(work)

    async def requested(self, target_ids: Sequence[str]) -> dict[str, CancelWish]:
        wanted = json.dumps(list(target_ids))
        found = await self._reader.query(lambda db: db.execute(_REQUESTED, (wanted,)).fetchall())
        return {target_id: CancelWish(at, tenant) for target_id, at, tenant in found}
