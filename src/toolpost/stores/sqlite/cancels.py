"""Cancel requests in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence

from toolpost.contracts.storage import CancelRequest
from toolpost.stores.changes import Changes
from toolpost.stores.sqlite.changes import CANCELS
from toolpost.stores.sqlite.database import Reader
from toolpost.stores.sqlite.event_appender import EventAppender
from toolpost.stores.sqlite.writer import Writer

_OWNERS = """
SELECT tenant FROM runs WHERE run_id = :id UNION SELECT tenant FROM journal WHERE call_id = :id
UNION SELECT tenant FROM pending WHERE call_id = :id
"""
_REQUEST = "INSERT OR REPLACE INTO cancels (target_id, tenant, requested_by, at) VALUES (?, ?, ?, ?)"
_REQUESTED = "SELECT target_id, at, tenant FROM cancels WHERE target_id IN (SELECT value FROM json_each(?))"


class SQLiteCancelStore:
    """Cancel requests, seen by the process that runs the call; one for a target of other tenants only is ignored."""

    def __init__(
        self,
        writer: Writer,
        reader: Reader,
        *,
        appender: EventAppender,
        changes: Changes,
        clock: Callable[[], float],
    ) -> None:
        self._changes = changes
        self._writer = writer
        self._reader = reader
        self._appender = appender
        self._clock = clock

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        def work(db: sqlite3.Connection) -> None:
            self._appender.save_heads(db)  # a run that began in this very transaction has a tenant, too
            owners = {owner for (owner,) in db.execute(_OWNERS, {"id": target_id})}
            if tenant is None or not owners or tenant in owners:
                db.execute(_REQUEST, (target_id, tenant or "", by, self._clock()))

        await self._writer.submit(work)
        self._changes.notify((CANCELS,))

    async def requested(self, target_ids: Sequence[str]) -> dict[str, list[CancelRequest]]:
        wanted = json.dumps(list(target_ids))
        found = await self._reader.query(lambda db: db.execute(_REQUESTED, (wanted,)).fetchall())
        wishes: dict[str, list[CancelRequest]] = {}
        for target_id, at, tenant in found:
            wishes.setdefault(target_id, []).append(CancelRequest(at, tenant or None))
        return wishes

    async def wait(self, after: int, *, timeout_s: float) -> int:
        newest: int = (await self._changes.wait({CANCELS: after}, timeout_s=timeout_s))[CANCELS]
        return newest
