"""Append events to the table: number, chain and insert them, and keep the ledger of all runs.

The ledger holds how many runs there are and the sum of their seals. The sum changes with each run, so that a run that
is removed, added or put back to an earlier state shows, and it costs one row however long the log is. Pruning takes
runs out of the sum.
"""

from __future__ import annotations

import json
import logging
import secrets
from functools import cache
from itertools import chain as flatten
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from toolpost.contracts.errors import StoreError
from toolpost.stores.chain import (
    DIGEST_BYTES,
    KEY_BYTES,
    LogKey,
    RunHead,
    escape_call_ids,
    escape_surrogates,
)
from toolpost.stores.sealing import UNREADABLE, RowSealer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from toolpost.contracts.events import CallRef, RunEvent
    from toolpost.stores.chain import RowFields

_log = logging.getLogger("toolpost.stores")
_ROW = ("ledger", "1", "key")
_MODULUS = 1 << 8 * DIGEST_BYTES
_LOAD = "SELECT last_event, last_run, runs, total, seal FROM ledger"
_SAVE = "UPDATE ledger SET last_event = ?, last_run = ?, runs = ?, total = ?, seal = ?"

MAX_HEADS = 10_000
HEAD_COLUMNS = (
    "nr, run_id, tenant, user, tool_name, status, started_at, updated_at, last_seq, last_hash, root_call, open_calls,"
    " seal"
)
RunName: TypeAlias = tuple[str, str]  # tenant and run id
# One statement for many rows: sqlite3 gives up the interpreter's lock once a statement, and a busy loop is slow to
# hand it back.
_CHUNKS = (128, 32, 8, 1)
_EVENTS = """
INSERT INTO events (id, run_id, seq, code, at, call_id, tenant, user, payload, hash) VALUES $ROWS
"""
_HEADS = f"""
INSERT INTO runs ({HEAD_COLUMNS}, owner) VALUES $ROWS
ON CONFLICT (nr) DO UPDATE SET user = excluded.user, status = excluded.status, updated_at = excluded.updated_at,
    last_seq = excluded.last_seq, last_hash = excluded.last_hash, root_call = excluded.root_call,
    open_calls = excluded.open_calls, seal = excluded.seal, owner = excluded.owner
"""  # noqa: S608 - constants, here and below
_EVENT_BLOBS, _HEAD_BLOBS = (9,), (9, 12)  # the columns of hashes and seals
_LOAD_HEADS = f"SELECT {HEAD_COLUMNS} FROM runs WHERE run_id IN (SELECT value FROM json_each(?))"  # noqa: S608


class Ledger:
    """The number of runs and events of a log and the sum of the runs' seals. Mutable: it changes with every event."""

    __slots__ = ("is_intact", "key", "last_event", "last_run", "runs", "total")

    def __init__(self, key: LogKey) -> None:
        self.key = key
        self.last_event = self.last_run = self.runs = self.total = 0
        self.is_intact = True

    def load(self, db: sqlite3.Connection) -> None:
        """Read the row; one that was changed is never sealed again, so that `verify` goes on to report it."""
        self.last_event, self.last_run, self.runs, total, seal = db.execute(_LOAD).fetchone()
        self.total = int.from_bytes(total, "big")
        self.is_intact = seal == self._seal()

    def save(self, db: sqlite3.Connection) -> None:
        """Write the row."""
        seal = self._seal() if self.is_intact else b""
        total = self.total.to_bytes(DIGEST_BYTES, "big")
        db.execute(_SAVE, (self.last_event, self.last_run, self.runs, total, seal))

    def change(self, *, old: Iterable[bytes] = (), new: Iterable[bytes] = ()) -> None:
        """Replace seals in the sum."""
        self.total = (self.total - _sum(old) + _sum(new)) % _MODULUS

    def find_breaks(self, seals: list[bytes]) -> list[str]:
        """Return the problems of the runs as a whole, given the seals of the stored runs."""
        if not self.is_intact:
            return ["the ledger of the log was changed, so that nobody can tell how many runs there should be"]
        if self.runs != len(seals):
            return [f"the log should hold {self.runs} runs and holds {len(seals)}: runs were removed or added"]
        if self.total != _sum(seals) % _MODULUS:
            return ["a run was exchanged for another, or put back to how it was before"]
        return []

    def _seal(self) -> bytes:
        return self.key.seal("ledger", (self.last_event, self.last_run, self.runs, self.total))


def _sum(seals: Iterable[bytes]) -> int:
    return sum(map(int.from_bytes, seals))  # big-endian


def load_ledger(db: sqlite3.Connection, sealer: RowSealer) -> Ledger | None:
    """Load the ledger of a log; None where there is none, or its key is lost.

    The log's key is random and sealed with the folder's key, so that it survives a rotation of the latter.
    """
    row = db.execute("SELECT key FROM ledger").fetchone()
    if row is None:
        return None
    try:
        ledger = Ledger(LogKey(bytes.fromhex(sealer.open(row[0], *_ROW))))
    except StoreError as error:
        if error.error_code != UNREADABLE:
            raise
        return None
    ledger.load(db)
    return ledger


def make_ledger(db: sqlite3.Connection, sealer: RowSealer) -> Ledger:
    """Create a ledger; one that replaces a ledger with a lost key stays marked as changed."""
    secret = secrets.token_bytes(KEY_BYTES)
    ledger, sealed = Ledger(LogKey(secret)), sealer.seal(secret.hex(), *_ROW)
    if db.execute("UPDATE ledger SET key = ?, seal = x''", (sealed,)).rowcount:
        _log.warning("the key of the event log was changed: what was told before cannot be verified any more")
        ledger.load(db)
        return ledger
    db.execute("INSERT INTO ledger VALUES (1, ?, 0, 0, 0, x'', x'')", (sealed,))
    ledger.save(db)
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

    def append(self, db: sqlite3.Connection, events: Sequence[RunEvent]) -> None:
        """Chain events to their runs and insert them."""
        self._load_heads(db, events)
        _insert(db, _EVENTS, self._chain(events), blobs=_EVENT_BLOBS)
        self._unsaved = True

    def save_heads(self, db: sqlite3.Connection) -> None:
        """Write the heads that changed in this transaction.

        They are written again when the transaction ends: the function that called this may be rolled back.
        """
        key, owner = self.ledger.key, self._owner_id
        heads = [head for _, head in sorted(self._touched.items())]
        self.ledger.change(old=[head.seal for head in heads])
        rows: list[tuple[object, ...]] = []
        for head in heads:
            head.seal = b"" if head.is_damaged else head.make_seal(key)
            rows.append((*head.columns(), head.seal, owner))
        self.ledger.change(new=[head.seal for head in heads])
        _insert(db, _HEADS, rows, blobs=_HEAD_BLOBS)

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
        """Remove deleted runs, given with their seals, from the ledger and the cache."""
        for name, seal in removed:
            head = self._heads.pop(name, None)
            if head is not None:
                self._touched.pop(head.nr, None)
            self.ledger.runs -= 1
            self.ledger.change(old=[seal])
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

    def _load_heads(self, db: sqlite3.Connection, events: Sequence[RunEvent]) -> None:
        """Load the heads of these events' runs into the cache, the most recently used last."""
        heads = self._heads
        missing: list[str] = []
        names: set[RunName] = set()
        known: CallRef | None = None
        for event in events:
            call = event.call
            if call is not known:  # the events of a call mostly come one after the other, here and below
                names.add((call.tenant, call.run_id))
                known = call
        for name in names:
            head = heads.pop(name, None)
            if head is None:
                missing.append(escape_surrogates(name[1]))
            else:
                heads[name] = head
        if missing:
            self._load(db, missing)

    def _load(self, db: sqlite3.Connection, run_ids: Sequence[str]) -> None:
        """Read heads; one with a wrong seal is never sealed again, so that `verify` goes on to report it."""
        for row in db.execute(_LOAD_HEADS, (json.dumps(run_ids),)):
            head = RunHead.of_row(row)
            if (head.tenant, head.run_id) in self._heads:
                continue
            head.is_damaged = head.seal != head.make_seal(self.ledger.key)
            self._heads[head.tenant, head.run_id] = head

    def _chain(self, events: Iterable[RunEvent]) -> list[RowFields]:
        """Return the chained rows of events; one flat loop, because it runs for every event."""
        heads, touched, ledger = self._heads, self._touched, self.ledger
        key, id_ = ledger.key, ledger.last_event
        rows: list[RowFields] = []
        known: CallRef | None = None
        head: RunHead | None = None
        for event in events:
            id_ += 1
            call = event.call
            if call is known and head is not None:
                rows.append(head.advance(event, call, id_, key))
                continue
            try:
                head, known = heads.get((call.tenant, call.run_id)) or RunHead.of_first(call, event.at), call
                rows.append(head.advance(event, call, id_, key))
            except (UnicodeEncodeError, TypeError):  # ids that are not text, or not such as UTF-8 knows
                call, known = escape_call_ids(call), None
                head = heads.get((call.tenant, call.run_id)) or RunHead.of_first(call, event.at)
                rows.append(head.advance(event, call, id_, key))
            if head.nr == 0:
                ledger.last_run = head.nr = ledger.last_run + 1
                ledger.runs += 1
                heads[head.tenant, head.run_id] = head
            touched[head.nr] = head
        ledger.last_event = id_
        return rows


def _insert(db: sqlite3.Connection, sql: str, rows: Sequence[tuple[object, ...]], *, blobs: tuple[int, ...]) -> None:
    """Insert rows, many with each statement: every statement gives up the interpreter's lock once."""
    start = 0
    for size in _CHUNKS:
        while len(rows) - start >= size:
            width = len(rows[start])
            values: list[Any] = list(flatten.from_iterable(rows[start : start + size]))
            for column in blobs:  # for bytes sqlite3 searches adapters in vain, which takes longer than to insert them
                values[column::width] = map(bytearray, values[column::width])
            db.execute(_statement(sql, width, size), values)
            start += size


@cache
def _statement(sql: str, width: int, rows: int) -> str:
    """Return the statement for so many rows; few variants, so that SQLite's statement cache holds them."""
    one = f"({', '.join('?' * width)})"
    return sql.replace("$ROWS", ", ".join([one] * rows))
