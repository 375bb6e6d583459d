"""The states of an SQLite store that can be waited for."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from typing import Any

from toolpost.stores.changes import Topic
from toolpost.stores.topics import CANCELS, EVENTS, JOBS, pending_topic, run_topic

_NEWEST_EVENT = "SELECT last_event FROM ledger"
_NEWEST_CANCEL = "SELECT ifnull(max(nr), 0) FROM cancels"
_NEWEST_JOB = "SELECT ifnull(max(nr), 0) FROM jobs"
_RUNS = """
SELECT tenant, run_id, (SELECT last_id FROM segments WHERE run = nr ORDER BY seq DESC LIMIT 1)
FROM json_each(?) CROSS JOIN runs ON run_id = value
"""
_PENDING = """
SELECT pending.id, status, outcome IS NOT NULL FROM json_each(?) CROSS JOIN pending ON pending.id = value
"""


def read_states(db: sqlite3.Connection, topics: Collection[Topic]) -> dict[Topic, Any]:
    """Return the states of topics, with one query for each kind."""
    states: dict[Topic, Any] = {topic: 0 if topic[0] == "run" else None for topic in topics}
    if EVENTS in states:
        states[EVENTS] = db.execute(_NEWEST_EVENT).fetchone()[0]
    if CANCELS in states:
        states[CANCELS] = db.execute(_NEWEST_CANCEL).fetchone()[0]
    if JOBS in states:
        states[JOBS] = db.execute(_NEWEST_JOB).fetchone()[0]
    if runs := [topic[2] for topic in topics if topic[0] == "run"]:
        found = {run_topic(tenant, run_id): newest for tenant, run_id, newest in db.execute(_RUNS, (json.dumps(runs),))}
        states.update((topic, newest) for topic, newest in found.items() if topic in states)
    if ids := [topic[1] for topic in topics if topic[0] == "pending"]:
        for id_, status, is_done in db.execute(_PENDING, (json.dumps(ids),)):
            states[pending_topic(id_)] = (status, bool(is_done))
    return states
