"""Move the events of earlier versions, which were one row each, into the segments of the log.

Each run is checked by the rule of its time. One that was broken is moved without a hash, so that `verify` goes on to
name it; the others are chained anew.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import groupby
from struct import Struct as Packer
from typing import Any, NamedTuple, TypeAlias, cast

from msgspec.structs import replace

from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.stores.chain import (
    DIGEST_BYTES,
    LogKey,
    PlainRow,
    RunHead,
    find_plain_breaks,
    join_ids,
    render_segments,
)
from toolpost.stores.database import in_transaction, secure_delete
from toolpost.stores.event_appender import HEAD_COLUMNS, Ledger, load_ledger, make_ledger, mark_row_macs
from toolpost.stores.pending import STATUS_COLUMNS, status_seal
from toolpost.stores.row_authentication import authenticate_older_rows
from toolpost.stores.sealing import RowSealer

_log = logging.getLogger("toolpost.stores")
_bits = Packer(">d").pack
_CODES = frozenset(map(int, EventCode))
_MOVING_S = 3600.0
_UNKEYED_RUNS = """
SELECT run_id, tenant, user, tool_name, owner, last_seq, last_hash FROM runs_before ORDER BY rowid
"""
_UNKEYED_EVENTS = """
SELECT id, seq, code, at, call_id, tenant, '', payload, hash, NULL FROM events_before WHERE run_id = ? ORDER BY seq
"""
_UNKEYED_STRAYS = """
SELECT run_id, min(tenant), '', '', '', 0, x'' FROM events_before
WHERE run_id NOT IN (SELECT run_id FROM runs_before) GROUP BY run_id
"""
_SEALED_RUNS = """
SELECT owner, seal, nr, run_id, tenant, user, tool_name, status, started_at, updated_at, last_seq, last_hash, root_call,
    open_calls
FROM runs_sealed ORDER BY nr
"""
_SEALED_EVENTS = """
SELECT id, seq, code, at, call_id, tenant, user, payload, hash, forgotten FROM events_single
WHERE run_id = ? AND tenant = ? ORDER BY seq
"""
_SEALED_STRAYS = """
SELECT DISTINCT run_id, tenant, '', '', '', 0, x'' FROM events_single
WHERE (run_id, tenant) NOT IN (SELECT run_id, tenant FROM runs_sealed)
"""
_NAMES = ("tool_name", "correlation_id")  # of each event, in columns of its segment now
_INSERT_SEGMENT = "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)"
_INSERT_RUN = f"INSERT INTO runs ({HEAD_COLUMNS}, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608


class _Run(NamedTuple):
    run_id: str
    tenant: str
    user: str
    tool_name: str
    owner: str
    last_seq: int
    last_hash: bytes


class _Event(NamedTuple):
    """An event as it was stored; `facts` are those of its payload."""

    id: int
    seq: int
    code: int
    at: float
    call_id: str
    tenant: str
    user: str
    payload: str
    hash: bytes
    forgotten: bytes | None
    facts: dict[str, Any]


_Columns: TypeAlias = tuple[int, int, int, float, str, str, str, str, bytes, bytes | None]
_TYPES = (int, int, int, float, str, str, str, str, bytes)  # of all columns but `forgotten`, which may be None


class _Events(NamedTuple):
    """The events of a run; where some are nothing that a Toolpost wrote, they are left out."""

    readable: list[_Event]
    is_complete: bool

    @classmethod
    def read(cls, rows: Iterable[tuple[Any, ...]]) -> _Events:
        """Read the events of a run, and warn of those that cannot be."""
        readable: list[_Event] = []
        is_complete = True
        for row in rows:
            *cells, forgotten = row
            if tuple(map(type, cells)) == _TYPES and isinstance(forgotten, bytes | None) and row[2] in _CODES:
                readable.append(_Event(*cast("_Columns", row), _parse_payload(row[7])))
            else:
                _log.warning("event %r of the log is damaged and is not moved to its new table", row[0])
                is_complete = False
        return cls(readable, is_complete)


def open_ledger(db: sqlite3.Connection, sealer: RowSealer) -> Ledger:
    """Load the ledger of a log, or make one; move the events of versions before to where they belong now."""

    def make() -> Ledger:
        known = load_ledger(db, sealer)  # Another process may have been first.
        ledger = known or make_ledger(db, sealer)
        if _has_table(db, "runs_sealed"):
            _move_sealed(db, ledger)
        if known is None and ledger.is_intact:
            _move_unkeyed(db, ledger)
        if known is None:  # there were no keys of callers before there was a ledger
            authenticate_older_rows(db, ledger.key, sealer, caller_keys=False)
        elif not known.has_row_macs:
            authenticate_older_rows(db, ledger.key, sealer, caller_keys=True)
            mark_row_macs(db, ledger, sealer)
        return ledger

    ledger = load_ledger(db, sealer)
    if ledger is not None and ledger.has_row_macs and not _has_table(db, "runs_sealed"):
        return ledger
    with _waiting(db, _MOVING_S), secure_delete(db):  # who is forgotten later must not be left in the old tables
        return in_transaction(db, make)


@contextmanager
def _waiting(db: sqlite3.Connection, longest_s: float) -> Generator[None]:
    """Wait for as long while another process moves the events of a large log."""
    before = db.execute("PRAGMA busy_timeout").fetchone()[0]
    db.execute(f"PRAGMA busy_timeout = {int(longest_s * 1000)}")
    try:
        yield
    finally:
        db.execute(f"PRAGMA busy_timeout = {before}")


def _has_table(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None


def _move_unkeyed(db: sqlite3.Connection, ledger: Ledger) -> None:
    """Move events and runs of a log without a key; a run that two tenants shared becomes one run of each."""
    # Never into a ledger that has begun: whoever can write to the file could have put the old tables there.
    if not _has_table(db, "runs_before"):
        ledger.is_intact = False  # There was a ledger, and somebody removed it.
        ledger.save(db)
        return
    sequence = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events_before'").fetchone()
    ledger.last_event = max(ledger.last_event, sequence[0] if sequence else 0)
    for row in [*db.execute(_UNKEYED_RUNS).fetchall(), *db.execute(_UNKEYED_STRAYS).fetchall()]:
        run = _Run(*row)
        events = _Events.read(db.execute(_UNKEYED_EVENTS, (run.run_id,)))
        is_whole = events.is_complete and _is_whole(run, events.readable)
        for tenant in dict.fromkeys([run.tenant, *(event.tenant for event in events.readable)]):
            mine = run if tenant == run.tenant else run._replace(tenant=tenant, user="", tool_name="", last_seq=0)
            theirs = [event._replace(user=mine.user) for event in events.readable if event.tenant == tenant]
            _move_run(db, ledger, mine, theirs, is_whole=is_whole)
    ledger.save(db)
    db.execute("DROP TABLE events_before")
    db.execute("DROP TABLE runs_before")
    for status in db.execute(f"SELECT {STATUS_COLUMNS} FROM pending").fetchall():  # noqa: S608 - constants
        db.execute("UPDATE pending SET seal = ? WHERE id = ?", (status_seal(ledger.key, status), status[0]))


def _move_sealed(db: sqlite3.Connection, ledger: Ledger) -> None:
    """Move events that had a digest and a link each, and runs that had a seal."""
    rows = db.execute(_SEALED_RUNS).fetchall()
    if ledger.find_breaks([row[1] for row in rows]):
        ledger.is_intact = False  # Runs were removed, added or exchanged: `verify` goes on to say so.
    newest = db.execute("SELECT max(id) FROM events_single").fetchone()[0] or 0
    ledger.last_event, ledger.last_run = max(ledger.last_event, newest), 0
    ledger.runs = ledger.total = 0
    for owner, seal, *columns in rows:
        _, run_id, tenant, user, tool_name, _, _, _, last_seq, last_hash, *_ = columns
        run = _Run(run_id, tenant, user, tool_name, owner, last_seq, last_hash)
        events = _Events.read(db.execute(_SEALED_EVENTS, (run.run_id, run.tenant)))
        is_whole = seal == ledger.key.seal("run", columns) and events.is_complete
        is_whole = is_whole and _is_sealed_whole(ledger.key, run, events.readable)
        _move_run(db, ledger, run, events.readable, is_whole=is_whole)
    for row in db.execute(_SEALED_STRAYS).fetchall():
        run = _Run(*row)
        events = _Events.read(db.execute(_SEALED_EVENTS, (run.run_id, run.tenant)))
        _move_run(db, ledger, run, events.readable, is_whole=False)
    ledger.save(db)
    db.execute("DROP TABLE events_single")
    db.execute("DROP TABLE runs_sealed")


def _move_run(db: sqlite3.Connection, ledger: Ledger, run: _Run, rows: Sequence[_Event], *, is_whole: bool) -> None:
    """Chain the events of a run as segments; each event keeps its id.

    A run whose events were all removed keeps its record, which tells how many there were.
    """
    if not rows and not run.last_seq:
        return
    first = rows[0] if rows else _Event(0, 0, 0, 0.0, "", "", run.user, "", b"", None, {})
    tool_name = run.tool_name or next((name for row in rows if (name := _names_of(row)["tool_name"])), "")
    call = CallRef(run.run_id, first.call_id, tool_name, run.tenant, first.user, "", dict)
    ledger.last_run, ledger.runs = ledger.last_run + 1, ledger.runs + 1
    head = RunHead.of_first(call, first.at, ledger.last_run)
    broken = sha256(head.chain_start).digest()  # the hash of no segment, and of no other run
    for (_, ref), group in groupby(enumerate(rows), key=lambda at: (at[1].id - at[0], _call_of(call, at[1]))):
        single = [row for _, row in group]
        events = [RunEvent(EventCode(row.code), row.at, ref, _facts_of(row)) for row in single]
        first_id = single[0].id
        for rendered in render_segments(ref, events):
            last_id = first_id + len(rendered.events) - 1
            columns = head.append(ref, rendered, last_id, ledger.key)
            first_id = last_id + 1
            if not is_whole:
                head.hash = broken
            db.execute(_INSERT_SEGMENT, (*columns[:-1], head.hash))
    if not rows:
        head.seq, head.hash = run.last_seq, broken
    head.seal = ledger.key.seal_end(head.hash)
    ledger.change(new=[head.seal])
    db.execute(_INSERT_RUN, (*head.columns(), run.owner))


def _call_of(call: CallRef, row: _Event) -> CallRef:
    return replace(call, call_id=row.call_id, user=row.user, **_names_of(row))


def _names_of(row: _Event) -> dict[str, str]:
    return {name: str(row.facts.get(name, "")) for name in _NAMES}


def _facts_of(row: _Event) -> dict[str, Any]:
    return {name: fact for name, fact in row.facts.items() if name not in _NAMES}


def _parse_payload(payload: str) -> dict[str, Any]:
    """Parse the payload of an event; a damaged one becomes `unrenderable` instead of an error."""
    try:
        facts = json.loads(payload)
    except (ValueError, RecursionError) as error:
        return {"unrenderable": type(error).__name__}
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else {"unrenderable": type(facts).__name__}


# ---------------------------------------------------------------- the rules of before


def _is_whole(run: _Run, events: Sequence[_Event]) -> bool:
    """Return whether the chain of a run was intact when it had no key."""
    rows = [PlainRow(run.run_id, *event[1:6], event.payload, event.hash) for event in events]
    last = (rows[-1].seq, rows[-1].hash) if rows else (0, b"")
    return not find_plain_breaks(rows) and last == (run.last_seq, run.last_hash)


def _is_sealed_whole(key: LogKey, run: _Run, events: Sequence[_Event]) -> bool:
    """Return whether the chain of a run was intact when each event had a digest and a link."""
    seq, previous = 0, b""
    for event in events:
        seq += 1
        if event.seq != seq or sha256(previous + _digest(key, run, event)).digest() != event.hash:
            return False
        previous = event.hash
    return (seq, previous) == (run.last_seq, run.last_hash)


def _digest(key: LogKey, run: _Run, event: _Event) -> bytes:
    """Return the digest of an event; empty where its facts were removed and its seal is not ours."""
    if event.forgotten is not None:
        seal, digest = event.forgotten[:DIGEST_BYTES], event.forgotten[DIGEST_BYTES:]
        bare = (event.id, run.run_id, *event[1:6], event.user, event.payload, event.hash, None)
        return digest if seal == key.seal("toolpost forgot", (*bare, digest)) else b""
    ids = join_ids(run.run_id, event.call_id, run.tenant, event.user)
    text = f"{event.id}|{event.seq}|{event.code}|{ids}|{event.payload}"
    return key.mac("toolpost event", _bits(event.at) + text.encode())
