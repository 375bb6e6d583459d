"""Schedules; their arguments are encrypted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from toolpost.contracts.jobs import Schedule
from toolpost.contracts.principal import Principal
from toolpost.stores.encryption import readable_rows
from toolpost.stores.sql.database import SharedDatabase

Schedules: TypeAlias = list[Schedule]  # The store's own `list` hides the builtin one.

_SCHEDULE = 'tenant, name, "user", cron, timezone, tool_name, arguments, created_at, created_by, last_at'
_PUT_SCHEDULE = """
INSERT INTO schedules (tenant, name, "user", cron, timezone, tool_name, arguments, created_at, created_by)
VALUES (:tenant, :name, :user, :cron, :timezone, :tool_name, :arguments, :created_at, :created_by)
ON CONFLICT DO NOTHING
"""
_LIST_SCHEDULES = f"SELECT {_SCHEDULE} FROM schedules ORDER BY tenant, name"  # noqa: S608 - constants, here and below
_TICK = f"""
UPDATE schedules SET last_at = :at WHERE tenant = :tenant AND name = :name AND coalesce(last_at, created_at) < :at
RETURNING {_SCHEDULE}
"""  # noqa: S608


class SQLScheduleStore:
    """Schedules by tenant and name; of several processes, one notes each of their times."""

    def __init__(self, shared: SharedDatabase) -> None:
        self._shared = shared

    async def put(self, schedule: Schedule) -> bool:
        tenant, user = schedule.principal
        values = {
            "tenant": tenant,
            "name": schedule.name,
            "user": user,
            "cron": schedule.cron,
            "timezone": schedule.timezone,
            "tool_name": schedule.tool_name,
            "arguments": self._shared.cipher.encrypt(
                dict(schedule.arguments), "schedules", tenant, user, schedule.name, "arguments"
            ),
            "created_at": schedule.created_at,
            "created_by": schedule.created_by,
        }
        return await self._shared.write(lambda db: db.execute(_PUT_SCHEDULE, values).rowcount == 1)

    async def list(self, *, tenant: str | None = None) -> Schedules:
        rows = await self._shared.read(lambda db: db.execute(_LIST_SCHEDULES).fetchall())
        mine = (row for row in rows if tenant in (None, row[0]))
        return readable_rows(mine, self._schedule, lambda row: f"schedule {row[1]!r} of {row[0]}")

    async def remove(self, name: str, *, tenant: str) -> bool:
        sql, values = "DELETE FROM schedules WHERE tenant = :tenant AND name = :name", {"tenant": tenant, "name": name}
        return await self._shared.write(lambda db: db.execute(sql, values).rowcount == 1)

    async def tick(self, name: str, *, tenant: str, at: float) -> Schedule | None:
        values = {"tenant": tenant, "name": name, "at": at}
        row = await self._shared.write(lambda db: db.execute(_TICK, values).fetchone())
        return None if row is None else self._schedule(row)

    def _schedule(self, row: Sequence[Any]) -> Schedule:
        tenant, name, user, cron, timezone, tool_name, arguments, created_at, created_by, last_at = row
        return Schedule(
            name=name,
            cron=cron,
            principal=Principal(tenant, user),
            tool_name=tool_name,
            arguments=self._shared.cipher.decrypt(arguments, "schedules", tenant, user, name, "arguments"),
            created_at=created_at,
            created_by=created_by,
            timezone=timezone,
            last_at=last_at,
        )
