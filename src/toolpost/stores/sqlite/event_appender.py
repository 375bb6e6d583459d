"""Append events to the log: number, chain and insert them, and keep the ledger of all runs.

The ledger contains the number of runs and the sum of their MACs. The sum reveals a run that was removed, added or
restored to an earlier state, and needs one row regardless of the length of the log. Pruning subtracts runs from it.
"""

from __future__ import annotations

import logging
import secrets
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from toolpost.contracts.errors import StoreError
from toolpost.stores.chain import DIGEST_BYTES, KEY_BYTES, LogKey
from toolpost.stores.encryption import UNREADABLE, RowCipher
from toolpost.stores.event_rendering import are_ascii, escape_call_ids, escape_surrogates, render_segments
from toolpost.stores.run_heads import RunHead
from toolpost.stores.sqlite.database import in_transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from toolpost.contracts.events import CallRef, RunEvent

_log = logging.getLogger("toolpost.stores")
_ROW = ("ledger", "1", "key")
_MODULUS = 1 << 8 * DIGEST_BYTES
_LOAD = "SELECT last_event, last_run, runs, total, mac FROM ledger"
_SAVE = "UPDATE ledger SET last_event = ?, last_run = ?, runs = ?, total = ?, mac = ?"

MAX_HEADS = 10_000
HEAD_COLUMNS = (
    "nr, run_id, tenant, user, tool_name, status, started_at, updated_at, last_seq, mac, root_call, open_calls"
)
RunName: TypeAlias = tuple[str, str]  # tenant and run id
CallEvents: TypeAlias = "tuple[CallRef, list[RunEvent]]"  # consecutive events of one call in a run
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
_SEGMENT_WIDTH, _HEAD_WIDTH = 12, 13
_LOAD_HEADS = f"""
SELECT {HEAD_COLUMNS}, ifnull((SELECT hash FROM segments WHERE run = nr ORDER BY seq DESC LIMIT 1), x'')
FROM json_each(?) CROSS JOIN runs ON run_id = value
"""  # noqa: S608


class Ledger:
    """The number of runs and events of a log and the sum of the runs' MACs. Mutable: it changes with every event."""

    __slots__ = ("is_intact", "key", "last_event", "last_run", "runs", "total")

    def __init__(self, key: LogKey) -> None:
        self.key = key
        self.last_event = self.last_run = self.runs = self.total = 0
        self.is_intact = True

    def load(self, db: sqlite3.Connection) -> None:
        """Read the row; a row that was tampered with keeps its invalid MAC, so `verify` continues to report it."""
        self.last_event, self.last_run, self.runs, total, mac = db.execute(_LOAD).fetchone()
        self.total = int.from_bytes(total, "big")
        self.is_intact = mac == self._mac()

    def save(self, db: sqlite3.Connection) -> None:
        """Write the row."""
        mac = self._mac() if self.is_intact else b""
        total = self.total.to_bytes(DIGEST_BYTES, "big")
        db.execute(_SAVE, (self.last_event, self.last_run, self.runs, total, mac))

    def change(self, *, old: Sequence[bytes] = (), new: Sequence[bytes] = ()) -> None:
        """Replace MACs in the sum."""
        self.total = (self.total - _sum(old) + _sum(new)) % _MODULUS

    def find_breaks(self, macs: list[bytes]) -> list[str]:
        """Return the problems of the runs as a whole, given the MACs of the stored runs."""
        if not self.is_intact:
            return ["the ledger of the log was changed, so the expected number of runs is unknown"]
        if self.runs != len(macs):
            return [f"the log should contain {self.runs} runs and contains {len(macs)}: runs were removed or added"]
        if self.total != _sum(macs) % _MODULUS:
            return ["a run was replaced by another, or restored to an earlier state"]
        return []

    def _mac(self) -> bytes:
        return self.key.mac_fields("ledger", (self.last_event, self.last_run, self.runs, self.total))


def _sum(macs: Sequence[bytes]) -> int:
    try:
        return sum(map(int.from_bytes, macs))  # big-endian
    except TypeError:  # one was replaced by a value that is not a MAC, which the sum reveals
        unknown: list[object] = list(macs)
        return sum(int.from_bytes(mac) for mac in unknown if isinstance(mac, bytes))


def open_ledger(db: sqlite3.Connection, cipher: RowCipher) -> Ledger:
    """Load the ledger of a log, or create it in a new database."""
    return _load_ledger(db, cipher) or in_transaction(db, lambda: _load_ledger(db, cipher) or _make_ledger(db, cipher))


def _load_ledger(db: sqlite3.Connection, cipher: RowCipher) -> Ledger | None:
    """Load the ledger; None if it is missing, or its key is new or lost.

    The key of the log is random and encrypted with the key of the folder, so it survives a rotation of the latter.
    """
    row = db.execute("SELECT key FROM ledger").fetchone()
    if row is None or not row[0]:
        return None
    try:
        ledger = Ledger(LogKey(bytes.fromhex(cipher.decrypt(row[0], *_ROW))))
    except StoreError as error:
        if error.error_code != UNREADABLE:
            raise
        return None
    ledger.load(db)
    return ledger


def _make_ledger(db: sqlite3.Connection, cipher: RowCipher) -> Ledger:
    """Create a ledger; one that replaces a deleted ledger, or one with a lost key, stays marked as changed."""
    secret = secrets.token_bytes(KEY_BYTES)
    ledger = Ledger(LogKey(secret))
    is_new = db.execute("SELECT key FROM ledger").fetchone() == (b"",)  # as the migration left it
    db.execute("INSERT OR IGNORE INTO ledger VALUES (1, x'', 0, 0, 0, x'', x'')")
    db.execute("UPDATE ledger SET key = ?, mac = x''", (cipher.encrypt(secret.hex(), *_ROW),))
    if is_new:
        ledger.save(db)
    else:
        _log.warning("the key of the event log was changed: events before this change can no longer be verified")
        ledger.load(db)
    return ledger


class EventAppender:
    """Appends events within the writer's transactions; caches the heads of recent runs and the ledger.

    The cache is dropped when another process has written, or a transaction was rolled back.
    """

    def __init__(self, owner_id: str, ledger: Ledger) -> None:
        self.ledger = ledger
        self._owner_id = owner_id
        self._heads: dict[RunName, RunHead] = {}
        self._touched: dict[int, RunHead] = {}  # by number
        self._version: int | None = None
        self._unsaved = False

    def begin(self, db: sqlite3.Connection) -> None:
        """Begin a transaction: drop the cache if another process has written."""
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.forget()
            self.ledger.load(db)
            self._version = version

    def append(self, db: sqlite3.Connection, events: Iterable[RunEvent]) -> None:
        """Chain events to their runs and insert them; the events of one run get consecutive IDs."""
        runs = _group_by_run(events)
        self._load_heads(db, runs)
        columns: list[Any] = []
        for name, calls in runs.items():
            self._chain(name, calls, columns)
        _insert(db, _SEGMENTS, columns, width=_SEGMENT_WIDTH)
        self._unsaved = True

    def save_heads(self, db: sqlite3.Connection) -> None:
        """Write the heads that changed in this transaction.

        They are written again when the transaction ends: the function that called this may be rolled back.
        """
        owner, end_mac, heads = self._owner_id, self.ledger.key.end_mac, self._touched.values()
        old = [head.mac for head in heads]
        columns: list[Any] = []
        for head in heads:
            head.mac = end_mac(head.hash)
            columns += head.columns()
            columns.append(owner)
        self.ledger.change(old=old, new=[head.mac for head in heads])
        _insert(db, _HEADS, columns, width=_HEAD_WIDTH)

    def finish(self, db: sqlite3.Connection) -> None:
        """End a transaction: write heads and ledger, and shrink the cache."""
        self.save_heads(db)
        self._touched.clear()
        if self._unsaved:
            self.ledger.save(db)
            self._unsaved = False
        for name in list(islice(self._heads, max(0, len(self._heads) - MAX_HEADS))):
            del self._heads[name]

    def remove_runs(self, removed: Iterable[tuple[RunName, bytes]]) -> None:
        """Remove deleted runs, given with their MACs, from the ledger and the cache."""
        for name, mac in removed:
            head = self._heads.pop(name, None)
            if head is not None:
                self._touched.pop(head.nr, None)
            self.ledger.runs -= 1
            self.ledger.change(old=[mac])
            self._unsaved = True

    def rename_user(self, db: sqlite3.Connection, names: Iterable[RunName], user: str) -> None:
        """Change the user of runs."""
        wanted = set(names)
        self._load(db, [run_id for _, run_id in wanted])
        for name in wanted:
            head = self._heads[name]
            head.user = user
            self._touched[head.nr] = head
            self._unsaved = True

    def forget(self) -> None:
        """Drop the cache."""
        self._heads.clear()
        self._touched.clear()
        self._version = None
        self._unsaved = False

    def _load_heads(self, db: sqlite3.Connection, names: Iterable[RunName]) -> None:
        """Load the heads of runs into the cache, the most recently used last."""
        heads = self._heads
        missing: list[str] = []
        for name in names:
            head = heads.pop(name, None)
            if head is None:
                missing.append(name[1])
            else:
                heads[name] = head
        if missing:
            self._load(db, missing if are_ascii(*missing) else list(map(escape_surrogates, missing)))

    def _load(self, db: sqlite3.Connection, run_ids: Sequence[str]) -> None:
        end_mac = self.ledger.key.end_mac
        for row in db.execute(_LOAD_HEADS, (orjson.dumps(run_ids).decode(),)):
            head = RunHead(*row)
            if head.mac != end_mac(head.hash):
                head.hash = b""  # tampered with: later events are not chained to it, so `verify` reports it
            self._heads.setdefault((head.tenant, head.run_id), head)

    def _chain(self, name: RunName, calls: Iterable[CallEvents], columns: list[Any]) -> None:
        """Chain the events of a run, and append the columns of their segments."""
        head = self._heads.get(name)
        for call, events in calls:
            if head is None:
                head = self._begin_run(call, events[0].at)
            try:
                self._append(head, call, events, columns)
            except TypeError:  # IDs that UTF-8 cannot encode
                head.root_call = escape_surrogates(head.root_call)
                self._append(head, escape_call_ids(call), events, columns)

    def _begin_run(self, call: CallRef, at: float) -> RunHead:
        """Return the head of a run that the cache does not have under the name in the call."""
        nr = self.ledger.last_run + 1
        try:
            head = RunHead.of_first(call, at, nr)
        except TypeError:
            call = escape_call_ids(call)
            known = self._heads.get((call.tenant, call.run_id))
            if known is not None:
                return known
            head = RunHead.of_first(call, at, nr)
        self.ledger.last_run = nr
        self.ledger.runs += 1
        self._heads[head.tenant, head.run_id] = head
        return head

    def _append(self, head: RunHead, call: CallRef, events: Sequence[RunEvent], columns: list[Any]) -> None:
        """Append the columns of the segments of a call's events."""
        ledger = self.ledger
        for rendered in render_segments(call, events):
            last_id = ledger.last_event + len(rendered.events)
            columns += head.append(call, rendered, last_id, ledger.key)
            ledger.last_event = last_id
        self._touched[head.nr] = head


def _group_by_run(events: Iterable[RunEvent]) -> dict[RunName, list[CallEvents]]:
    """Group events by run, then consecutive events by call; the order within a run is kept."""
    runs: dict[RunName, list[CallEvents]] = {}
    known: CallRef | None = None
    part: list[RunEvent] = []
    for event in events:
        call = event.call
        if call is not known:  # most events of a call are consecutive
            known = call
            calls = runs.setdefault((call.tenant, call.run_id), [])
            if not calls or calls[-1][0] is not call:
                calls.append((call, []))
            part = calls[-1][1]
        part.append(event)
    return runs


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
