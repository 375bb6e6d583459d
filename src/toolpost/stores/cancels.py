"""Wishes to cancel in SQLite, seen by whichever process runs the call."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence

from toolpost.contracts.storage import CancelWish
from toolpost.stores.reader import Reader
from toolpost.stores.writer import Writer

_OWNERS = """
SELECT tenant FROM events WHERE run_id = :id UNION SELECT tenant FROM journal WHERE call_id = :id
UNION SELECT tenant FROM pending WHERE call_id = :id
"""
_REQUEST = "INSERT OR REPLACE INTO cancels (target_id, tenant, requested_by, at) VALUES (?, ?, ?, ?)"
_REQUESTED = "SELECT target_id, at, tenant FROM cancels WHERE target_id IN (SELECT value FROM json_each(?))"


class SQLiteCancelStore:
    """A wish for what is known to belong to other tenants alone is not kept."""

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

    async def requested(self, target_ids: Sequence[str]) -> dict[str, list[CancelWish]]:
        wanted = json.dumps(list(target_ids))
        found = await self._reader.query(lambda db: db.execute(_REQUESTED, (wanted,)).fetchall())
        wishes: dict[str, list[CancelWish]] = {}
        for target_id, at, tenant in found:
            wishes.setdefault(target_id, []).append(CancelWish(at, tenant or None))
        return wishes
