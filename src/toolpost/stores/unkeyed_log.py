"""Moves the events of a log without a key into the keyed one, once, when a folder of before is opened.

Each run is first checked by the rule it was written by. What was broken then is moved over as it is, without a seal, so
that `verify` goes on to name it; the rest is sealed as it was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.stores.appender import HEAD_COLUMNS
from toolpost.stores.chain import PlainRow, find_plain_breaks, read_facts
from toolpost.stores.runs import RunHead
from toolpost.stores.verification import STANDING_COLUMNS, standing_seal

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from toolpost.stores.chain import EventRow, LogKey
    from toolpost.stores.ledger import Ledger

_RUNS = "SELECT run_id, tenant, user, tool_name, last_seq, last_hash, owner FROM runs_before ORDER BY rowid"
_EVENTS = "SELECT id, seq, code, at, call_id, tenant, payload, hash FROM events_before WHERE run_id = ? ORDER BY seq"
_STRAY = """
SELECT run_id, min(tenant), '', '', 0, x'', '' FROM events_before
WHERE run_id NOT IN (SELECT run_id FROM runs_before) GROUP BY run_id
"""
_INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_RUN = f"INSERT INTO runs ({HEAD_COLUMNS}, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608


class _Run(NamedTuple):
    run_id: str
    tenant: str
    user: str
    tool_name: str
    last_seq: int
    last_hash: bytes
    owner: str


class _Event(NamedTuple):
    id: int
    seq: int
    code: int
    at: float
    call_id: str
    tenant: str
    payload: str
    hash: bytes


def adopt_unkeyed_log(db: sqlite3.Connection, ledger: Ledger) -> None:
    """Move all there is into the tables of a new ledger; within the transaction of the caller.

    Never into one that has begun: whoever can write to the file could have put it there.
    """
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs_before'").fetchone():
        ledger.is_intact = False  # There was a ledger, and somebody removed it.
        ledger.save(db)
        return
    sequence = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events_before'").fetchone()
    ledger.last_event = sequence[0] if sequence else 0
    for row in [*db.execute(_RUNS).fetchall(), *db.execute(_STRAY).fetchall()]:
        _adopt_run(db, ledger, _Run(*row))
    ledger.save(db)
    db.execute("DROP TABLE events_before")
    db.execute("DROP TABLE runs_before")
    _seal_questions(db, ledger.key)


def _seal_questions(db: sqlite3.Connection, key: LogKey) -> None:
    for standing in db.execute(f"SELECT {STANDING_COLUMNS} FROM pending").fetchall():  # noqa: S608 - constants
        db.execute("UPDATE pending SET seal = ? WHERE id = ?", (standing_seal(key, standing), standing[0]))


def _adopt_run(db: sqlite3.Connection, ledger: Ledger, run: _Run) -> None:
    """Chain a run's events anew; one that two tenants shared becomes a run of each."""
    events = [_Event(*row) for row in db.execute(_EVENTS, (run.run_id,))]
    is_broken = not _is_whole(run, events)
    for tenant in dict.fromkeys([run.tenant, *(event.tenant for event in events)]):
        mine = tenant == run.tenant
        user, tool_name = (run.user, run.tool_name) if mine else ("", "")
        call = CallRef(run.run_id, "", tool_name, tenant, user, "", dict)
        theirs = [event for event in events if event.tenant == tenant]
        head = _chain(db, ledger, call, theirs)
        if head is not None:
            seal = b"" if is_broken else head.sealed(ledger.key)
            ledger.change(new=seal)
            db.execute(_INSERT_RUN, (*head.facts(), seal, run.owner))


def _chain(db: sqlite3.Connection, ledger: Ledger, call: CallRef, events: Iterable[_Event]) -> RunHead | None:
    head: RunHead | None = None
    for event in events:
        ref = call._replace(call_id=event.call_id)
        if head is None:
            ledger.last_run, ledger.runs = ledger.last_run + 1, ledger.runs + 1
            head = RunHead.of_first(ref, event.at, ledger.last_run)
        row: EventRow = head.advance(
            RunEvent(EventCode(event.code), event.at, ref, {}), ref, event.payload, id=event.id, key=ledger.key
        )
        db.execute(_INSERT_EVENT, row)
        if not head.tool_name:
            head.tool_name = read_facts(row.payload).get("tool_name", "")
    return head


def _is_whole(run: _Run, events: Sequence[_Event]) -> bool:
    rows = [PlainRow(run.run_id, *event[1:]) for event in events]
    last = (rows[-1].seq, rows[-1].hash) if rows else (0, b"")
    return not find_plain_breaks(rows) and last == (run.last_seq, run.last_hash)
