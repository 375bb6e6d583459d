"""Events on their way into the table: numbered, chained and inserted by the writer, many at a time."""

from __future__ import annotations

import json
from functools import cache
from itertools import chain as flatten
from itertools import islice
from typing import TYPE_CHECKING

from toolpost.stores.payloads import payload_text
from toolpost.stores.runs import RunHead, storable_call

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from toolpost.contracts.events import RunEvent
    from toolpost.stores.chain import Fields

MAX_HEADS = 10_000

# One statement for many rows: sqlite3 gives up the interpreter's lock once a statement, and a busy loop is slow to
# hand it back.
_CHUNKS = (128, 32, 8, 1)
_EVENTS = "INSERT INTO events (run_id, seq, code, at, call_id, tenant, payload, hash) VALUES $ROWS"
_HEADS = """
INSERT INTO runs (run_id, tenant, user, tool_name, status, started_at, updated_at, last_seq, last_hash, root_call,
    owner)
VALUES $ROWS
ON CONFLICT (run_id) DO UPDATE SET status = excluded.status, updated_at = excluded.updated_at,
    last_seq = excluded.last_seq, last_hash = excluded.last_hash, root_call = excluded.root_call,
    owner = excluded.owner
"""
_LOAD_HEADS = """
SELECT run_id, tenant, user, tool_name, status, started_at, updated_at, last_seq, last_hash, root_call
FROM runs WHERE run_id IN (SELECT value FROM json_each(?))
"""


class EventAppender:
    """Appends events within the writer's transactions and remembers the heads of recent runs.

    The remembered heads are dropped whenever another process has written, or a
    transaction was rolled back.
    """

    def __init__(self, owner_id: str) -> None:
        self._owner_id = owner_id
        self._heads: dict[str, RunHead] = {}
        self._touched: dict[str, RunHead] = {}
        self._version: int | None = None

    def begin(self, db: sqlite3.Connection) -> None:
        """Start a transaction's worth of events."""
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.forget()
            self._version = version

    def append(self, db: sqlite3.Connection, events: Sequence[RunEvent]) -> None:
        """Insert events behind what their runs already have."""
        self._load_heads(db, events)
        _insert(db, _EVENTS, self._chain(events))

    def save_heads(self, db: sqlite3.Connection) -> None:
        """Write the heads that moved, each once however many events it got."""
        _insert(db, _HEADS, sorted([(*head.row(), self._owner_id) for head in self._touched.values()]))

    def finish(self, db: sqlite3.Connection) -> None:
        """End a transaction's worth of events."""
        self.save_heads(db)
        self._touched.clear()
        for run_id in list(islice(self._heads, max(0, len(self._heads) - MAX_HEADS))):
            del self._heads[run_id]

    def drop(self, run_ids: Iterable[str]) -> None:
        """Forget runs that were removed."""
        for run_id in run_ids:
            self._heads.pop(run_id, None)
            self._touched.pop(run_id, None)

    def forget(self) -> None:
        """Forget every head; the table has them."""
        self._heads.clear()
        self._touched.clear()
        self._version = None

    def _load_heads(self, db: sqlite3.Connection, events: Sequence[RunEvent]) -> None:
        """Have the heads of these events' runs at hand, the ones used last at the end."""
        heads = self._heads
        missing: list[str] = []
        for run_id in {event.call.run_id for event in events}:
            head = heads.pop(run_id, None)
            if head is None:
                missing.append(run_id)
            else:
                heads[run_id] = head
        if missing:
            for row in db.execute(_LOAD_HEADS, (json.dumps(missing),)):
                heads[row[0]] = RunHead(*row)

    def _chain(self, events: Iterable[RunEvent]) -> list[Fields]:
        """The rows of these events; one flat loop, because it runs for every event there ever is."""
        heads, touched = self._heads, self._touched
        rows: list[Fields] = []
        for event in events:
            call = event.call
            payload = payload_text(event)
            head = heads.get(call.run_id) or RunHead.of_first(call, event.at)
            try:
                rows.append(head.advance(event, call, payload))
            except (UnicodeEncodeError, TypeError):  # ids that are not text, or not such as UTF-8 knows
                call = storable_call(call)
                head = heads.get(call.run_id) or RunHead.of_first(call, event.at)
                rows.append(head.advance(event, call, payload))
            heads[head.run_id] = touched[head.run_id] = head
        return rows


def _insert(db: sqlite3.Connection, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert rows, many with each statement: every one costs a turn of the interpreter's lock."""
    start = 0
    for size in _CHUNKS:
        while len(rows) - start >= size:
            chunk = rows[start : start + size]
            db.execute(_statement(sql, len(chunk[0]), size), tuple(flatten.from_iterable(chunk)))
            start += size


@cache
def _statement(sql: str, width: int, rows: int) -> str:
    """One of few texts, so that SQLite need not compile it again."""
    one = f"({', '.join('?' * width)})"
    return sql.replace("$ROWS", ", ".join([one] * rows))
