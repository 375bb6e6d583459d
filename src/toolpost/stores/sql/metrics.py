"""Metrics of calls and questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from toolpost.contracts.metrics import HOUR_S, MINUTE_S, Dimension, MetricRow
from toolpost.stores.metric_counting import MINUTES_KEPT_S, MetricCounter, metric_row, metric_values
from toolpost.stores.sql.database import SharedDatabase, SQLConnection, where

_NAMES = MetricRow.__struct_fields__
_PRIMARY = ("tenant", "dimension", "width", "begin", "key")
_COLUMNS = ", ".join(_NAMES)
_POSITION = "SELECT position FROM metrics_position FOR UPDATE"
_OF_PERIOD = " AND ".join(f"{name} = :{name}" for name in _PRIMARY)
_FIND = f"SELECT {_COLUMNS} FROM metrics WHERE {_OF_PERIOD}"  # noqa: S608 - constants, here and below
_SAVE = f"""
INSERT INTO metrics ({_COLUMNS}) VALUES ({", ".join(f":{name}" for name in _NAMES)})
ON CONFLICT ({", ".join(_PRIMARY)})
DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _NAMES if name not in _PRIMARY)}
"""  # noqa: S608
_READ = f"""
SELECT {_COLUMNS} FROM metrics
WHERE dimension = :dimension AND width = :width AND begin >= :since AND begin < :until
"""  # noqa: S608
_BEGIN = "SELECT min(begin) FROM metrics WHERE tenant = :tenant AND dimension = 'none' AND width = :width"
_PRUNE = "DELETE FROM metrics WHERE (width = :minute AND begin < :minutes) OR (width = :hour AND begin < :hours)"
_FORGET = "DELETE FROM metrics WHERE tenant = :tenant AND dimension = 'user' AND key = :user"
_ASKED_AT = "SELECT created_at FROM pending WHERE id = :id"

ReadSegments = Callable[[SQLConnection, int, int], Sequence[tuple[Any, ...]]]


class SQLMetricStore:
    """Metrics of calls and questions; counting is one transaction, so each event is counted once.

    `read_segments` returns the position, the tenant, user and tool, and the events of the next segments after a
    position, at most as many as a limit.
    """

    def __init__(self, shared: SharedDatabase, read_segments: ReadSegments) -> None:
        self._shared = shared
        self._read_segments = read_segments

    async def count(self, *, limit: int = 1000) -> int:
        return await self._shared.write(partial(self._count, limit=limit))

    async def read(
        self,
        dimension: Dimension,
        *,
        tenant: str | None,
        width: int,
        since: float,
        until: float,
        key: str | None = None,
    ) -> list[MetricRow]:
        values = {"tenant": tenant, "dimension": dimension, "width": width, "since": since, "until": until, "key": key}
        sql = f"{_READ}{where(tenant=tenant, key=key)} ORDER BY begin, key"
        rows = await self._shared.read(lambda db: db.execute(sql, values).fetchall())
        return [metric_row(row) for row in rows]

    async def begin(self, *, tenant: str) -> int | None:
        values = {"tenant": tenant, "width": HOUR_S}
        found: int | None = await self._shared.read(lambda db: db.execute(_BEGIN, values).fetchone()[0])
        return found

    def _count(self, db: SQLConnection, *, limit: int) -> int:
        (position,) = db.execute(_POSITION).fetchone()  # locked: one process at a time counts
        segments = self._read_segments(db, position, limit)
        if not segments:
            return 0
        counter = MetricCounter(partial(_asked_at, db))
        for _, tenant, user, tool_name, events in segments:
            counter.count_segment((tenant, user, tool_name), events)
        for name, row in counter.rows().items():
            tenant, dimension, key, width, begin = name
            period = {"tenant": tenant, "dimension": dimension, "width": width, "begin": begin, "key": key}
            stored = db.execute(_FIND, period).fetchone()
            merged = row if stored is None else metric_row(stored).merge(row)
            db.execute(_SAVE, dict(zip(_NAMES, metric_values(merged), strict=True)))
        db.execute("UPDATE metrics_position SET position = :position", {"position": segments[-1][0]})
        return len(segments)


def prune_metrics(db: SQLConnection, *, cutoff: float, now: float) -> int:
    """Delete rows of minutes after some days, and rows before the cutoff; return the number of rows."""
    oldest = {"minutes": max(now - MINUTES_KEPT_S, cutoff), "hours": cutoff}
    return db.execute(_PRUNE, {"minute": MINUTE_S, "hour": HOUR_S, **oldest}).rowcount


def forget_metrics(db: SQLConnection, tenant: str, user: str) -> None:
    """Delete the rows of a user; the user's calls stay in the other rows, which name no user."""
    db.execute(_FORGET, {"tenant": tenant, "user": user})


def _asked_at(db: SQLConnection, pending_id: str) -> float | None:
    row = db.execute(_ASKED_AT, {"id": pending_id}).fetchone()
    return None if row is None else row[0]
