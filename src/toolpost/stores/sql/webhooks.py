"""Progress of webhooks in the event log, and the process that sends for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import asdict

from toolpost.contracts.storage import WebhookProgress
from toolpost.stores.sql.database import SharedDatabase, SQLConnection

Rows: TypeAlias = list[WebhookProgress]  # The stores' own `list` hides the builtin one.

_COLUMNS = "name, position, delivered, failures, error, failing_since, next_try_at"
_BEGIN = f"""
INSERT INTO webhooks ({_COLUMNS}, owner)
VALUES (:name, :position, :delivered, :failures, :error, :failing_since, :next_try_at, '') ON CONFLICT DO NOTHING
"""  # noqa: S608 - constants, here and below
_OWNER = "SELECT owner FROM webhooks WHERE name = :name FOR UPDATE"
_TAKE = f"UPDATE webhooks SET owner = :owner WHERE name = :name RETURNING {_COLUMNS}"  # noqa: S608
_SAVE = """
UPDATE webhooks SET position = :position, delivered = :delivered, failures = :failures, error = :error,
    failing_since = :failing_since, next_try_at = :next_try_at
WHERE name = :name AND owner = :owner
"""
_RELEASE = "UPDATE webhooks SET owner = '' WHERE name = :name AND owner = :owner"
_LIST = f"SELECT {_COLUMNS} FROM webhooks ORDER BY name"  # noqa: S608


class SQLWebhookStore:
    """Progress of webhooks; the owner of a row is the process that sends, until it releases the row or ends."""

    def __init__(self, shared: SharedDatabase) -> None:
        self._shared = shared

    async def take(self, name: str, *, begin: int) -> WebhookProgress | None:
        me = self._shared.owner_id

        def work(db: SQLConnection) -> WebhookProgress | None:
            db.execute(_BEGIN, asdict(WebhookProgress(name=name, position=begin)))
            (owner,) = db.execute(_OWNER, {"name": name}).fetchone()
            if owner not in ("", me) and not db.ended([owner]):
                return None
            return _progress(db.execute(_TAKE, {"owner": me, "name": name}).fetchone())

        return await self._shared.write(work)

    async def save(self, progress: WebhookProgress) -> bool:
        values = {**asdict(progress), "owner": self._shared.owner_id}
        return await self._shared.write(lambda db: db.execute(_SAVE, values).rowcount == 1)

    async def release(self, name: str) -> None:
        values = {"name": name, "owner": self._shared.owner_id}

        def work(db: SQLConnection) -> None:
            db.execute(_RELEASE, values)

        await self._shared.write(work)

    async def list(self) -> Rows:
        return [_progress(row) for row in await self._shared.read(lambda db: db.execute(_LIST).fetchall())]


def _progress(row: Sequence[object]) -> WebhookProgress:
    return WebhookProgress(**dict(zip(WebhookProgress.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]
