"""Append events to the log in SQLite: number, chain and insert them, and keep the ledger of all runs."""

from __future__ import annotations

import logging
import secrets
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson

from toolpost.stores.chain import KEY_BYTES, LogKey
from toolpost.stores.ledger import LEDGER_ROW, Ledger, read_log_key
from toolpost.stores.run_chains import HEAD_WIDTH, SEGMENT_WIDTH, RunChains, RunName, group_by_run
from toolpost.stores.sqlite.database import in_transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from toolpost.contracts.events import RunEvent
    from toolpost.stores.encryption import RowCipher

_log = logging.getLogger("toolpost.stores")
_LOAD = "SELECT last_event, last_run, runs, total, mac FROM ledger"
_SAVE = "UPDATE ledger SET last_event = ?, last_run = ?, runs = ?, total = ?, mac = ?"

HEAD_COLUMNS = (
    "nr, run_id, tenant, user, tool_name, status, started_at, updated_at, last_seq, mac, root_call, open_calls"
)
# One statement for many rows: sqlite3 releases the GIL once per statement, and reacquiring it from a busy loop is slow.
_CHUNKS = (128, 32, 8, 1)
_SEGMENTS = """
INSERT INTO segments (
    last_id, run, seq, call_id, user, tool_name, correlation_id, events, hash, codes, first_at, last_at
) VALUES $ROWS
"""
_HEADS = f"""
INSERT INTO runs ({HEAD_COLUMNS}, owner) VALUES $ROWS
ON CONFLICT (nr) DO UPDATE SET user = excluded.user, status = excluded.status, updated_at = excluded.updated_at,
    last_seq = excluded.last_seq, mac = excluded.mac, root_call = excluded.root_call,
    open_calls = excluded.open_calls, owner = excluded.owner
"""  # noqa: S608 - constants, here and below
_LOAD_HEADS = f"""
SELECT {HEAD_COLUMNS}, ifnull((SELECT hash FROM segments WHERE run = nr ORDER BY seq DESC LIMIT 1), x'')
FROM json_each(?) CROSS JOIN runs ON run_id = value
"""  # noqa: S608


def load_ledger(db: sqlite3.Connection, ledger: Ledger) -> None:
    """Read the row of the ledger."""
    ledger.read(db.execute(_LOAD).fetchone())


def save_ledger(db: sqlite3.Connection, ledger: Ledger) -> None:
    """Write the row of the ledger."""
    db.execute(_SAVE, ledger.columns())


def open_ledger(db: sqlite3.Connection, cipher: RowCipher) -> Ledger:
    """Load the ledger of a log, or create it in a new database."""
    return _find_ledger(db, cipher) or in_transaction(db, lambda: _find_ledger(db, cipher) or _make_ledger(db, cipher))


def _find_ledger(db: sqlite3.Connection, cipher: RowCipher) -> Ledger | None:
    """Load the ledger; None if it is missing, or its key is new or lost."""
    row = db.execute("SELECT key FROM ledger").fetchone()
    key = None if row is None else read_log_key(row[0], cipher)
    if key is None:
        return None
    ledger = Ledger(key)
    load_ledger(db, ledger)
    return ledger


def _make_ledger(db: sqlite3.Connection, cipher: RowCipher) -> Ledger:
    """Create a ledger; one that replaces a deleted ledger, or one with a lost key, stays marked as changed."""
    secret = secrets.token_bytes(KEY_BYTES)
    ledger = Ledger(LogKey(secret))
    is_new = db.execute("SELECT key FROM ledger").fetchone() == (b"",)  # as the migration left it
    db.execute("INSERT OR IGNORE INTO ledger VALUES (1, x'', 0, 0, 0, x'', x'')")
    db.execute("UPDATE ledger SET key = ?, mac = x''", (cipher.encrypt(secret.hex(), *LEDGER_ROW),))
    if is_new:
        db.execute(_SAVE, ledger.columns())
    else:
        _log.warning("the key of the event log was changed: events before this change can no longer be verified")
        load_ledger(db, ledger)
    return ledger


class EventAppender:
    """Appends events within the writer's transactions; caches the heads of recent runs and the ledger.

    The cache is dropped when another process has written, or a transaction was rolled back.
    """

    def __init__(self, owner_id: str, ledger: Ledger) -> None:
        self.ledger = ledger
        self._owner_id = owner_id
        self._chains = RunChains(ledger.key, ledger)
        self._version: int | None = None
        self._unsaved = False

    def begin(self, db: sqlite3.Connection) -> None:
        """Begin a transaction: drop the cache if another process has written."""
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.forget()
            load_ledger(db, self.ledger)
            self._version = version

    def append(self, db: sqlite3.Connection, events: Iterable[RunEvent]) -> None:
        """Chain events to their runs and insert them; the events of one run get consecutive IDs."""
        runs = group_by_run(events)
        self._load(db, self._chains.missing(runs))
        _insert(db, _SEGMENTS, self._chains.append(runs), width=SEGMENT_WIDTH)
        self._unsaved = True

    def save_heads(self, db: sqlite3.Connection) -> None:
        """Write the heads that changed in this transaction.

        They are written again when the transaction ends: the function that called this may be rolled back.
        """
        old, heads = self._chains.seal()
        columns: list[Any] = []
        for head in heads:
            columns += head.columns()
            columns.append(self._owner_id)
        self.ledger.change(old=old, new=[head.mac for head in heads])
        _insert(db, _HEADS, columns, width=HEAD_WIDTH)

    def finish(self, db: sqlite3.Connection) -> None:
        """End a transaction: write heads and ledger, and shrink the cache."""
        self.save_heads(db)
        if self._unsaved:
            db.execute(_SAVE, self.ledger.columns())
            self._unsaved = False
        self._chains.finish()

    def remove_runs(self, removed: Iterable[tuple[RunName, bytes]]) -> None:
        """Remove deleted runs, given with their MACs, from the ledger and the cache."""
        for name, mac in removed:
            self._chains.remove(name)
            self.ledger.runs -= 1
            self.ledger.change(old=[mac])
            self._unsaved = True

    def rename_user(self, db: sqlite3.Connection, names: Iterable[RunName], user: str) -> None:
        """Change the user of runs."""
        wanted = set(names)
        self._load(db, [run_id for _, run_id in wanted])
        for name in wanted:
            head = self._chains.heads[name]
            head.user = user
            self._chains.touched[head.nr] = head
            self._unsaved = True

    def forget(self) -> None:
        """Drop the cache."""
        self._chains.forget()
        self._version = None
        self._unsaved = False

    def _load(self, db: sqlite3.Connection, run_ids: Sequence[str]) -> None:
        if run_ids:
            self._chains.load(db.execute(_LOAD_HEADS, (orjson.dumps(run_ids).decode(),)))


def _insert(db: sqlite3.Connection, sql: str, columns: Sequence[Any], *, width: int) -> None:
    """Insert rows of `width` columns, many with each statement."""
    start = 0
    for rows in _CHUNKS:
        size = rows * width
        while len(columns) - start >= size:
            db.execute(_statement(sql, width, rows), columns[start : start + size])
            start += size


@cache
def _statement(sql: str, width: int, rows: int) -> str:
    """Return the statement for a number of rows; few variants fit SQLite's statement cache."""
    one = f"({', '.join('?' * width)})"
    return sql.replace("$ROWS", ", ".join([one] * rows))
