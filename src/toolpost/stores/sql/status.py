"""The status of a store: the unfinished work in its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from toolpost.contracts.jobs import QUEUES
from toolpost.contracts.store_status import (
    FLOW_S,
    MOST_SILENT,
    SILENT_S,
    OwnerStatus,
    QueueStatus,
    SilentRun,
    StoreStatus,
)
from toolpost.stores.sql.database import Statements

# Calls that wait for a nested call do not count. The ID of a nested call begins with that of its parent and a dot; "/"
# is the character after the dot.
_PENDING = """
SELECT count(*), min(created_at) FROM pending AS one WHERE status = 'open' AND NOT EXISTS (
    SELECT 1 FROM pending AS inside
    WHERE inside.call_id > one.call_id || '.' AND inside.call_id < one.call_id || '/' AND inside.status = 'open'
)
"""
_RUNS = "SELECT owner, status, count(*) FROM runs WHERE open_calls > 0 GROUP BY owner, status"
_INTENTS = "SELECT owner, count(*) FROM journal WHERE result IS NULL AND step = '' GROUP BY owner"
_CLAIMS = "SELECT owner, count(*) FROM pending WHERE owner IS NOT NULL GROUP BY owner"
_SILENT = f"""
SELECT run_id, tenant, tool_name, owner, updated_at FROM runs
WHERE open_calls > 0 AND status = 'running' AND updated_at < :before ORDER BY updated_at LIMIT {MOST_SILENT}
"""  # noqa: S608 - a constant
_UNCOUNTED = """
SELECT last_at FROM segments WHERE last_id > (SELECT position FROM metrics_position) ORDER BY last_id LIMIT 1
"""
_QUEUES = """
SELECT queue, count(*) FILTER (WHERE status = 'waiting'), count(*) FILTER (WHERE status = 'running'),
    min(created_at) FILTER (WHERE status = 'waiting'), count(*) FILTER (WHERE created_at > :after), count(ended_at)
FROM jobs WHERE status IN ('waiting', 'running') OR ended_at > :after GROUP BY queue
"""
WITH_JOBS = 2  # the version of the schema since when there are jobs


def read_status(db: Statements, owners: Iterable[OwnerStatus], *, at: float, schema: int = WITH_JOBS) -> StoreStatus:
    """Return the status of a database with a version of the schema, given the processes that have it open."""
    pending, oldest_pending_at = db.execute(_PENDING).fetchone()
    runs = [(owner, status, count) for owner, status, count in db.execute(_RUNS)]
    silent = db.execute(_SILENT, {"before": at - SILENT_S}).fetchall()
    uncounted = db.execute(_UNCOUNTED).fetchone()
    return StoreStatus(
        at=at,
        owners=_with_work(db, owners, Counter({owner: count for owner, status, count in runs if status == "running"})),
        pending=pending,
        oldest_pending_at=oldest_pending_at,
        running=sum(count for _, status, count in runs if status == "running"),
        paused=sum(count for _, status, count in runs if status == "paused"),
        silent=[SilentRun(**dict(zip(SilentRun.__struct_fields__, row, strict=True))) for row in silent],
        uncounted_since=None if uncounted is None else uncounted[0],
        queues=_read_queues(db, at) if schema >= WITH_JOBS else [],
    )


def _read_queues(db: Statements, at: float) -> list[QueueStatus]:
    found = {row[0]: row for row in db.execute(_QUEUES, {"after": at - FLOW_S})}
    return [QueueStatus(*found.get(queue, (queue, 0, 0, None, 0, 0))) for queue in QUEUES]


def _with_work(db: Statements, owners: Iterable[OwnerStatus], running: Counter[str]) -> list[OwnerStatus]:
    """Return living owners, and those that have ended and left work."""
    intents = Counter[str](dict(iter(db.execute(_INTENTS))))
    claims = Counter[str](dict(iter(db.execute(_CLAIMS))))
    unfinished = (running | intents) + claims  # most intents are of running calls
    known = {owner.id: owner for owner in owners}
    ended = [OwnerStatus(id=id_, is_alive=False) for id_ in unfinished if id_ not in known]
    found = [replace(one, unfinished=unfinished[one.id]) for one in (*known.values(), *ended)]
    return [one for one in found if one.is_alive or one.unfinished]
