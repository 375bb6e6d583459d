"""Append events to the log in PostgreSQL: number, chain and insert them, and keep this process's part of the ledger.

The position of an event contains the number of its transaction. A reader that reads up to the oldest transaction that
is still open misses no event, although transactions commit in another order than they begin.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import EventCode
from toolpost.stores.chain import KEY_BYTES, LogKey, Segment
from toolpost.stores.ledger import LEDGER_ROW, Ledger, read_log_key
from toolpost.stores.postgres.database import MIGRATION_LOCK, constant
from toolpost.stores.run_chains import SEGMENT_WIDTH, RunChains, RunName, group_by_run
from toolpost.stores.run_heads import find_open_calls

if TYPE_CHECKING:
    from toolpost.contracts.events import RunEvent
    from toolpost.stores.encryption import RowCipher
    from toolpost.stores.postgres.database import Connection, Cursor
    from toolpost.stores.postgres.liveness import Leases
    from toolpost.stores.run_heads import RunHead

_log = logging.getLogger("toolpost.stores")
POSITION_BITS = 12  # 4,096 events and new runs of a transaction

HEAD_COLUMNS = (
    'nr, run_id, tenant, "user", tool_name, status, started_at, updated_at, last_seq, mac, root_call, open_calls'
)
_FIND_KEY = "SELECT key FROM ledger WHERE id = 1"
# Locked until the end of the transaction, which renews the lease. Another process that gives up this owner skips it.
_BEGIN = """
SELECT (pg_current_xact_id()::text::bigint - event_base) << 12, batch, last_event, last_run, runs, total, owners.mac
FROM owners, meta WHERE owners.id = %s AND dead_at IS NULL FOR NO KEY UPDATE OF owners
"""
_SAVE = """
UPDATE owners SET until = toolpost.now() + %s, batch = %s, last_event = %s, last_run = %s, runs = %s, total = %s,
    mac = %s
WHERE id = %s
"""
_SEGMENTS = f"""
INSERT INTO segments (
    last_id, run, seq, call_id, "user", tool_name, correlation_id, events, hash, codes, first_at, last_at
) VALUES ({", ".join(["%s"] * SEGMENT_WIDTH)})
"""  # noqa: S608 - constants, here and below
_NEW_RUN = f"INSERT INTO runs ({HEAD_COLUMNS}, owner) VALUES ({', '.join(['%s'] * 13)})"  # noqa: S608
# Nothing if another process has appended to the run since. The user is changed by `rename_user` alone.
_NEXT_HEAD = """
UPDATE runs SET status = %s, updated_at = %s, last_seq = %s, mac = %s, root_call = %s, open_calls = %s, owner = %s
WHERE nr = %s AND mac = %s
"""
# Two statements: after it waited for a lock, a statement would still read the old segments.
_LOCK_HEADS = "SELECT FROM runs WHERE run_id = ANY(%s) ORDER BY nr FOR NO KEY UPDATE"
_LOAD_HEADS = f"""
SELECT coalesce(last_id, 0), {HEAD_COLUMNS.replace('"user"', 'runs."user"').replace("tool_name", "runs.tool_name")},
    coalesce(hash, '')
FROM runs LEFT JOIN LATERAL (
    SELECT last_id, hash FROM segments WHERE run = nr ORDER BY seq DESC LIMIT 1
) AS last ON TRUE
WHERE run_id = ANY(%s)
"""  # noqa: S608
_EVENTS_OF_RUNS = """
SELECT last_id, run_id, tenant, seq, call_id, segments."user", segments.tool_name, correlation_id, events, hash,
    forgotten
FROM segments JOIN runs ON runs.nr = segments.run WHERE run_id = ANY(%s) ORDER BY last_id
"""
_ENDS = frozenset({EventCode.TOOL_CALL_COMPLETED, EventCode.TOOL_CALL_FAILED})
_RENAME = 'UPDATE runs SET "user" = %s WHERE run_id = %s AND tenant = %s'


class RunChangedError(Exception):
    """Another process has appended to a run at the same time; the transaction is repeated."""


class LeaseLostError(Exception):
    """Another process has given up this owner, because its lease had ended."""


def open_ledger(db: Connection, cipher: RowCipher) -> Ledger:
    """Return an empty ledger with the key of the log, which is created in a new database."""
    row = db.execute(_FIND_KEY).fetchone()
    key = None if row is None else read_log_key(row[0], cipher)
    if key is not None:
        return Ledger(key)
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        row = db.execute(_FIND_KEY).fetchone()
        key = None if row is None else read_log_key(row[0], cipher)
        return Ledger(_make_key(db, cipher) if key is None else key)


def _make_key(db: Connection, cipher: RowCipher) -> LogKey:
    """Create the key of the log; a ledger that was deleted, or whose key was lost, stays marked as changed."""
    secret = secrets.token_bytes(KEY_BYTES)
    key = LogKey(secret)
    is_new = db.execute(_FIND_KEY).fetchone() == (b"",)  # as the migration left it
    db.execute("INSERT INTO ledger VALUES (1, '', 0, 0, 0, '', '') ON CONFLICT DO NOTHING")
    db.execute("UPDATE ledger SET key = %s, mac = ''", (cipher.encrypt(secret.hex(), *LEDGER_ROW),))
    if is_new:
        save = "UPDATE ledger SET last_event = %s, last_run = %s, runs = %s, total = %s, mac = %s"
        db.execute(save, Ledger(key).columns())
    else:
        _log.warning("the key of the event log was changed: events before this change can no longer be verified")
    return key


@dataclass(slots=True)
class _Numbers:
    """The last positions that the current transaction assigned, and the number of runs that it began."""

    last_event: int = 0
    last_run: int = 0
    runs: int = 0


class PostgresEventAppender:
    """Appends events within the writer's transactions; caches heads of recent runs and its own part of the ledger.

    A head in the cache may be old, because another process has appended to the run. Then the transaction raises
    RunChangedError and is repeated, with locks.
    """

    def __init__(self, leases: Leases) -> None:
        self.ledger = leases.own
        self._leases = leases
        self._numbers = _Numbers()
        self._chains = RunChains(self.ledger.key, self._numbers)
        self._is_read = False
        self._has_lost_lease = False
        self._is_locking = False
        self._begun_at = 0.0
        self._first = 0
        self._batch = 0
        self._segments: list[Any] = []  # columns of rows
        self._new: frozenset[str] = frozenset()  # runs that were looked up when the transaction began

    @property
    def batch(self) -> tuple[str, int]:
        """The owner and the number of the current transaction."""
        return self._leases.owner_id, self._batch

    @property
    def position(self) -> int | None:
        """The position of the last event of the current transaction, None without events."""
        return self._numbers.last_event if self._numbers.last_event >= self._first else None

    def begin(self, db: Connection, *, at: float, runs: Iterable[RunName] = (), locking: bool = False) -> None:
        """Begin a transaction: check and lock the row of this process, and take positions for events.

        The heads of `runs` are read in the same step; with `locking` they are locked before. Raises LeaseLostError.
        """
        missing = self._chains.missing(runs)
        with db.pipeline():
            db.execute("BEGIN")
            cursor = db.execute(_BEGIN, (self._leases.owner_id,))
            heads = self._query_heads(db, missing, locking=locking) if missing else None
        row = cursor.fetchone()
        if row is None:
            raise LeaseLostError
        self._first, batch, *columns = row
        if not self._is_read:
            self.ledger.read(tuple(columns))
            self._is_read = True
        self._numbers.last_event = self._numbers.last_run = self._first - 1
        self._batch = batch + 1
        self._begun_at = at
        self._is_locking = locking
        self._new = frozenset(missing)
        if heads is not None:
            self._keep(heads)

    def append(self, db: Connection, events: Iterable[RunEvent]) -> None:
        """Chain events to their runs; the events of one run get consecutive positions."""
        if self._has_lost_lease:
            events = self._without_second_ends(db, list(events))
        runs = group_by_run(events)
        self._load(db, [run_id for run_id in self._chains.missing(runs) if run_id not in self._new])
        numbers = self._numbers
        numbers.runs = 0
        self._segments += self._chains.append(runs)
        self.ledger.runs += numbers.runs
        self.ledger.last_event, self.ledger.last_run = numbers.last_event, numbers.last_run
        if numbers.last_event - self._first >= 1 << POSITION_BITS:
            raise StoreError("a transaction contains too many events; this is a bug of Toolpost")

    def save_heads(self, db: Connection) -> None:
        """Insert the segments of this transaction so far, and write the heads of their runs.

        The writer does this before each function of a batch.
        """
        if self._segments or self._chains.touched:
            with db.pipeline():
                changed = self._write(db)
            _check(changed)

    def finish(self, db: Connection, also: Callable[[], None] = lambda: None) -> None:
        """End a transaction: write events, heads, this process's part of the ledger and the new lease in one step.

        `also` may execute other statements in this step.
        """
        owner_id, batch = self.batch
        with db.pipeline():
            changed = self._write(db)
            also()
            db.execute(_SAVE, (self._leases.lease_s, batch, *self.ledger.columns(), owner_id))
        _check(changed)
        self._chains.finish()

    def _write(self, db: Connection) -> tuple[Cursor, int] | None:
        """Write heads and segments within a pipeline; return the cursor of changed heads, and their number.

        The heads come first and in one order, so that two processes wait for each other's runs without a deadlock.
        """
        columns, self._segments = self._segments, []
        old, heads = self._chains.seal()
        self.ledger.change(old=old, new=[head.mac for head in heads])
        self._chains.touched.clear()
        owner_id = self._leases.owner_id
        new = [(*head.columns(), owner_id) for head, mac in zip(heads, old, strict=True) if not mac]
        if new:
            db.cursor().executemany(constant(_NEW_RUN), new)
        changed = [
            (*_changes(head), owner_id, head.nr, mac)
            for mac, head in sorted(zip(old, heads, strict=True), key=_nr)
            if mac
        ]
        cursor = db.cursor()
        if changed:
            cursor.executemany(_NEXT_HEAD, changed)
        if columns:
            rows = [columns[start : start + SEGMENT_WIDTH] for start in range(0, len(columns), SEGMENT_WIDTH)]
            db.cursor().executemany(constant(_SEGMENTS), rows)
        return (cursor, len(changed)) if changed else None

    def committed(self) -> None:
        """Note that the transaction was committed, and with it the new lease."""
        self._leases.note_renewal(self._begun_at)

    def remove_runs(self, removed: Iterable[tuple[RunName, bytes]]) -> None:
        """Remove deleted runs from the ledger and the cache, given with the MACs that their DELETE returned."""
        for name, mac in removed:
            self._chains.remove(name)
            self.ledger.runs -= 1
            self.ledger.change(old=[mac])

    def rename_user(self, db: Connection, names: Iterable[RunName], user: str) -> None:
        """Change the user of runs."""
        renamed = [(user, run_id, tenant) for tenant, run_id in set(names)]
        if renamed:
            db.cursor().executemany(_RENAME, renamed)
        for _, run_id, tenant in renamed:
            head = self._chains.heads.get((tenant, run_id))
            if head is not None:
                head.user = user

    def note_lost_lease(self) -> None:
        """Note that other processes have ended calls of this one, whose own ends are no longer appended."""
        self._has_lost_lease = True

    def _without_second_ends(self, db: Connection, events: Sequence[RunEvent]) -> Sequence[RunEvent]:
        """Remove the ends of calls that have ended already."""
        ended = {event.call.run_id for event in events if event.code in _ENDS}
        if not ended:
            return events
        self.save_heads(db)
        rows = db.execute(_EVENTS_OF_RUNS, (list(ended),)).fetchall()
        stored = (event for row in rows for event in Segment(*row).unpack())
        open_calls = {(call.tenant, call.run_id, call.call_id) for call in find_open_calls(stored)}
        left: list[RunEvent] = []
        for event in events:
            call = (event.call.tenant, event.call.run_id, event.call.call_id)
            if event.code == EventCode.TOOL_CALL_REQUESTED:
                open_calls.add(call)
            elif event.code in _ENDS and call not in open_calls:
                _log.warning("the end of call %s is not in the log: another process has ended the call", call[-1])
                continue
            elif event.code in _ENDS:
                open_calls.remove(call)
            left.append(event)
        return left

    def forget(self) -> None:
        """Drop the cache."""
        self._chains.forget()
        self._segments.clear()
        self._is_read = False

    def _load(self, db: Connection, run_ids: Sequence[str]) -> None:
        if run_ids:
            self._keep(self._query_heads(db, run_ids, locking=self._is_locking))

    def _query_heads(self, db: Connection, run_ids: Sequence[str], *, locking: bool) -> Cursor:
        if locking:
            db.execute(_LOCK_HEADS, (run_ids,))
        return db.execute(_LOAD_HEADS, (run_ids,))

    def _keep(self, heads: Cursor) -> None:
        rows = heads.fetchall()
        # A process that began its transaction later has appended first: the positions of a run have to increase.
        if any(last_id >= self._first for last_id, *_ in rows):
            raise RunChangedError
        self._chains.load(head for _, *head in rows)


def _check(changed: tuple[Cursor, int] | None) -> None:
    if changed is not None and changed[0].rowcount != changed[1]:
        raise RunChangedError


def _nr(sealed: tuple[bytes, RunHead]) -> int:
    return sealed[1].nr


def _changes(head: RunHead) -> tuple[Any, ...]:
    return head.status, head.updated_at, head.seq, bytearray(head.mac), head.root_call, head.open_calls
