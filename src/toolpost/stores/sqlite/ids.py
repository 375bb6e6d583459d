"""Search for ids by prefix in SQLite."""

from __future__ import annotations

import sqlite3

from toolpost.contracts.storage import IdKind

_IDS: dict[IdKind, str] = {
    "pending": "SELECT id, tenant, created_at AS at FROM pending",
    "open_pending": "SELECT id, tenant, created_at AS at FROM pending WHERE status = 'open'",
    "run": "SELECT run_id AS id, tenant, started_at AS at FROM runs",
    "call": """
        SELECT run_id AS id, tenant, started_at AS at FROM runs UNION SELECT root_call, tenant, started_at FROM runs
    """,
    "artifact": "SELECT id, tenant, created_at AS at FROM artifacts",
    "caller_key": "SELECT id, tenant, created_at AS at FROM caller_keys",
}


def find_ids(db: sqlite3.Connection, kind: IdKind, prefix: str, *, tenant: str | None, limit: int) -> list[str]:
    """Return the ids with a prefix, the newest first."""
    # A range instead of a pattern, so that the index of the ids is used.
    sql = f"""
        SELECT id FROM ({_IDS[kind]}) WHERE id >= :prefix AND id < :prefix || char(1114111)
        AND (:tenant IS NULL OR tenant = :tenant) ORDER BY at DESC LIMIT :limit
    """  # noqa: S608 - constants
    return [row[0] for row in db.execute(sql, {"prefix": prefix, "tenant": tenant, "limit": limit})]
