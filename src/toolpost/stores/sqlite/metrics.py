"""Metrics of calls and questions in SQLite."""

from __future__ import annotations

import sqlite3
from functools import partial

from toolpost.contracts.metrics import HOUR_S, MINUTE_S, Dimension, MetricRow
from toolpost.stores.metric_counting import MINUTES_KEPT_S, MetricCounter, metric_row, metric_values
from toolpost.stores.sqlite.context import SQLiteContext

_COLUMNS = ", ".join(MetricRow.__struct_fields__)
_NEXT = """
SELECT last_id, tenant, segments.user, segments.tool_name, events FROM segments JOIN runs ON runs.nr = segments.run
WHERE last_id > (SELECT position FROM metrics_position) ORDER BY last_id LIMIT ?
"""
_OF_PERIOD = "tenant = ? AND dimension = ? AND width = ? AND begin = ? AND key = ?"
_FIND = f"SELECT {_COLUMNS} FROM metrics WHERE {_OF_PERIOD}"  # noqa: S608 - constants, here and below
_SAVE = f"INSERT OR REPLACE INTO metrics ({_COLUMNS}) VALUES ({', '.join('?' * len(MetricRow.__struct_fields__))})"  # noqa: S608
_READ = f"""
SELECT {_COLUMNS} FROM metrics
WHERE tenant = :tenant AND dimension = :dimension AND width = :width AND begin >= :since AND begin < :until
AND (:key IS NULL OR key = :key) ORDER BY begin, key
"""  # noqa: S608
_BEGIN = "SELECT min(begin) FROM metrics WHERE tenant = ? AND dimension = 'none' AND width = ?"
_PRUNE = "DELETE FROM metrics WHERE (width = ? AND begin < ?) OR (width = ? AND begin < ?)"
_FORGET = "DELETE FROM metrics WHERE tenant = ? AND dimension = 'user' AND key = ?"


class SQLiteMetricStore:
    """Metrics of calls and questions; counting is one transaction, so each event is counted once."""

    def __init__(self, shared: SQLiteContext) -> None:
        self._shared = shared

    async def count(self, *, limit: int = 500) -> int:
        return await self._shared.writer.submit(partial(_count, limit=limit))

    async def read(
        self,
        dimension: Dimension,
        *,
        tenant: str,
        width: int,
        since: float,
        until: float,
        key: str | None = None,
    ) -> list[MetricRow]:
        values = {"tenant": tenant, "dimension": dimension, "width": width, "since": since, "until": until, "key": key}
        rows = await self._shared.reader.query(lambda db: db.execute(_READ, values).fetchall())
        return [metric_row(row) for row in rows]

    async def begin(self, *, tenant: str) -> int | None:
        values = (tenant, HOUR_S)
        found: int | None = await self._shared.reader.query(lambda db: db.execute(_BEGIN, values).fetchone()[0])
        return found


def prune_metrics(db: sqlite3.Connection, *, cutoff: float, now: float) -> int:
    """Delete rows of minutes after some days, and rows before the cutoff; return the number of rows."""
    return db.execute(_PRUNE, (MINUTE_S, max(now - MINUTES_KEPT_S, cutoff), HOUR_S, cutoff)).rowcount


def forget_metrics(db: sqlite3.Connection, tenant: str, user: str) -> None:
    """Delete the rows of a user; the user's calls stay in the other rows, which name no user."""
    db.execute(_FORGET, (tenant, user))


def _count(db: sqlite3.Connection, *, limit: int) -> int:
    segments = db.execute(_NEXT, (limit,)).fetchall()
    if not segments:
        return 0
    counter = MetricCounter(partial(_asked_at, db))
    for _, tenant, user, tool_name, events in segments:
        counter.count_segment((tenant, user, tool_name), events)
    for name, row in counter.rows().items():
        tenant, dimension, key, width, begin = name
        stored = db.execute(_FIND, (tenant, dimension, width, begin, key)).fetchone()
        db.execute(_SAVE, metric_values(row if stored is None else metric_row(stored).merge(row)))
    db.execute("UPDATE metrics_position SET position = ?", (segments[-1][0],))
    return len(segments)


def _asked_at(db: sqlite3.Connection, pending_id: str) -> float | None:
    row = db.execute("SELECT created_at FROM pending WHERE id = ?", (pending_id,)).fetchone()
    return None if row is None else row[0]
