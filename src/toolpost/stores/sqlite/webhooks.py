"""Progress of webhooks in the event log, and the process that sends for each, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import astuple

from toolpost.contracts.storage import WebhookProgress
from toolpost.stores.sqlite.context import SQLiteContext

Rows: TypeAlias = list[WebhookProgress]  # The stores' own `list` hides the builtin one.

_COLUMNS = "name, position, delivered, failures, error, failing_since, next_try_at"
_BEGIN = f"INSERT OR IGNORE INTO webhooks ({_COLUMNS}, owner) VALUES (?, ?, ?, ?, ?, ?, ?, '')"  # noqa: S608 - constants, here and below
_OWNER = "SELECT owner FROM webhooks WHERE name = ?"
_TAKE = f"UPDATE webhooks SET owner = ? WHERE name = ? RETURNING {_COLUMNS}"  # noqa: S608
_SAVE = """
UPDATE webhooks SET position = ?, delivered = ?, failures = ?, error = ?, failing_since = ?, next_try_at = ?
WHERE name = ? AND owner = ?
"""
_RELEASE = "UPDATE webhooks SET owner = '' WHERE name = ? AND owner = ?"
_LIST = f"SELECT {_COLUMNS} FROM webhooks ORDER BY name"  # noqa: S608


class SQLiteWebhookStore:
    """Progress of webhooks; the owner of a row is the process that sends, until it releases the row or ends."""

    def __init__(self, shared: SQLiteContext) -> None:
        self._shared = shared

    async def take(self, name: str, *, begin: int) -> WebhookProgress | None:
        me = self._shared.owner_id

        def work(db: sqlite3.Connection) -> WebhookProgress | None:
            db.execute(_BEGIN, astuple(WebhookProgress(name=name, position=begin)))
            (owner,) = db.execute(_OWNER, (name,)).fetchone()
            if owner not in ("", me) and self._shared.liveness.alive(owner):
                return None
            return _progress(db.execute(_TAKE, (me, name)).fetchone())

        return await self._shared.writer.submit(work)

    async def save(self, progress: WebhookProgress) -> bool:
        name, *columns = astuple(progress)
        row = (*columns, name, self._shared.owner_id)
        return await self._shared.writer.submit(lambda db: db.execute(_SAVE, row).rowcount == 1)

    async def release(self, name: str) -> None:
        row = (name, self._shared.owner_id)
        await self._shared.writer.submit(lambda db: db.execute(_RELEASE, row).close())

    async def list(self) -> Rows:
        return [_progress(row) for row in await self._shared.reader.query(lambda db: db.execute(_LIST).fetchall())]


def _progress(row: Sequence[object]) -> WebhookProgress:
    return WebhookProgress(**dict(zip(WebhookProgress.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]
