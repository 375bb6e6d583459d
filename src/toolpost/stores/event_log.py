"""The event log in SQLite: emit, read and verify events, and migrate logs of versions that had no key."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from toolpost.contracts.events import JOURNALED, CallRef, EventCode, EventFilter, RunEvent, RunSummary, StoredEvent
from toolpost.stores.chain import (
    ASKED,
    EventRow,
    LogKey,
    PlainRow,
    RunHead,
    find_open_calls,
    find_plain_breaks,
    find_second_answers,
    parse_payload,
    stored_event,
)
from toolpost.stores.database import Reader, in_transaction
from toolpost.stores.event_appender import HEAD_COLUMNS, EventAppender, Ledger, load_ledger, make_ledger
from toolpost.stores.liveness import Liveness
from toolpost.stores.pending import STATUS_COLUMNS, status_seal
from toolpost.stores.sealing import RowSealer
from toolpost.stores.writer import Writer

_now = time.time
ROW_COLUMNS = "id, run_id, seq, code, at, call_id, tenant, user, payload, hash, forgotten"

_EVENTS = f"SELECT {ROW_COLUMNS} FROM events WHERE id > :after"  # noqa: S608 - constants, here and below
_ROWS = f"SELECT {ROW_COLUMNS} FROM events WHERE run_id = ? AND tenant = ? ORDER BY seq"  # noqa: S608
_RUNS = f"SELECT {HEAD_COLUMNS} FROM runs WHERE TRUE"  # noqa: S608
_CALLED = " AND root_call <> ''"  # notices of sources and of the catalog belong to no call, so that nobody ran them
_BEFORE = " AND nr < (SELECT max(nr) FROM runs WHERE run_id = :before AND (:tenant IS NULL OR tenant = :tenant))"
_TOOL = "CASE WHEN json_valid(payload) THEN json_extract(payload, '$.tool_name') END"
# A run that waits for a person has an open call, too, and nothing of it is lost.
_ORPHANED = """
open_calls > 0 AND (status = 'running' OR open_calls > (
    SELECT count(*) FROM pending WHERE pending.run_id = runs.run_id AND pending.tenant = runs.tenant
    AND pending.status IN ('open', 'claimed')
))
"""
_RUNNERS = f"SELECT DISTINCT owner FROM runs WHERE {_ORPHANED}"  # noqa: S608
_ADOPT = f"UPDATE runs SET owner = ? WHERE owner = ? AND {_ORPHANED} RETURNING {HEAD_COLUMNS}"  # noqa: S608
_QUESTIONS = f"SELECT {STATUS_COLUMNS}, seal FROM pending WHERE run_id = ? AND tenant = ?"  # noqa: S608
_JOURNAL = "SELECT call_id FROM journal WHERE run_id = ? AND tenant = ? AND step = ''"
_STRAY_EVENTS = """
SELECT run_id, tenant, count(*) FROM events GROUP BY run_id, tenant
HAVING NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = events.run_id AND runs.tenant = events.tenant)
"""
_STRAY_QUESTIONS = f"""
SELECT {STATUS_COLUMNS}, seal FROM pending
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = pending.run_id AND runs.tenant = pending.tenant)
"""  # noqa: S608
_ENDED = frozenset({int(EventCode.TOOL_CALL_COMPLETED), int(EventCode.TOOL_CALL_FAILED)})

_OLD_RUNS = "SELECT run_id, tenant, user, tool_name, last_seq, last_hash, owner FROM runs_before ORDER BY rowid"
_OLD_EVENTS = (
    "SELECT id, seq, code, at, call_id, tenant, payload, hash FROM events_before WHERE run_id = ? ORDER BY seq"
)
_OLD_STRAY_EVENTS = """
SELECT run_id, min(tenant), '', '', 0, x'', '' FROM events_before
WHERE run_id NOT IN (SELECT run_id FROM runs_before) GROUP BY run_id
"""
_INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)"
_INSERT_RUN = f"INSERT INTO runs ({HEAD_COLUMNS}, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608


class SQLiteEventLog:
    """Append-only log of events; reading flushes first, so that it includes all that this process emitted."""

    def __init__(self, writer: Writer, reader: Reader, *, appender: EventAppender, liveness: Liveness) -> None:
        self._writer = writer
        self._reader = reader
        self._appender = appender
        self._liveness = liveness

    def emit(self, event: RunEvent) -> None:
        self._writer.put(event)

    def record(self, call: CallRef, code: EventCode, facts: Mapping[str, Any]) -> None:
        self._writer.put(RunEvent(code, _now(), call, facts))

    @property
    def congested(self) -> bool:
        return self._writer.congested

    async def drain(self) -> None:
        await self._writer.drain()

    async def flush(self) -> None:
        await self._writer.flush()

    async def read(
        self,
        *,
        tenant: str | None = None,
        run_id: str | None = None,
        after: int = 0,
        limit: int = 1000,
        only: EventFilter | None = None,
        newest: bool = False,
    ) -> list[StoredEvent]:
        await self._writer.flush()
        only = only or EventFilter()
        sql = _EVENTS + _where(tenant=tenant, run_id=run_id) + _filter(only)
        sql += f" ORDER BY id {'DESC' if newest else ''} LIMIT :limit"
        values: dict[str, Any] = {"after": after, "tenant": tenant, "run_id": run_id, "limit": max(0, limit)}
        values |= {"tool": only.tool, "since": only.since, "user": only.user}

        def work(db: sqlite3.Connection) -> list[StoredEvent]:
            found = [stored_event(EventRow(*row)) for row in db.execute(sql, values)]
            return found[::-1] if newest else found

        return await self._reader.query(work)

    async def runs(
        self, *, tenant: str | None = None, user: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[RunSummary]:
        await self._writer.flush()
        sql = _RUNS + _CALLED + _where(tenant=tenant) + (" AND user = :user" if user is not None else "")
        sql += (_BEFORE if before is not None else "") + " ORDER BY nr DESC LIMIT :limit"
        values = {"tenant": tenant, "user": user, "before": before, "limit": max(0, limit)}
        return await self._reader.query(lambda db: [RunHead.of_row(row).summary() for row in db.execute(sql, values)])

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        await self._writer.flush()
        sql = _RUNS + _where(tenant=tenant, run_id=run_id) + " ORDER BY nr"
        row = await self._reader.query(lambda db: db.execute(sql, {"tenant": tenant, "run_id": run_id}).fetchone())
        return RunHead.of_row(row).summary() if row else None

    async def adopt_orphans(self) -> list[RunSummary]:
        def work(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            self._appender.save_heads(db)  # a run that ended in this very transaction is no orphan
            dead = [owner for (owner,) in db.execute(_RUNNERS).fetchall() if not self._liveness.alive(owner)]
            return [row for owner in dead for row in db.execute(_ADOPT, (self._liveness.owner_id, owner)).fetchall()]

        return [RunHead.of_row(row).summary() for row in await self._writer.submit(work)]

    async def open_calls(self, run_id: str, *, tenant: str) -> list[RunSummary]:
        await self._writer.flush()
        rows = await self._reader.query(lambda db: db.execute(_ROWS, (run_id, tenant)).fetchall())
        return find_open_calls(EventRow(*row) for row in rows)

    async def verify(self, run_id: str | None = None, *, tenant: str | None = None) -> list[str]:
        await self._writer.flush()
        key = self._appender.ledger.key

        def work(db: sqlite3.Connection) -> list[str]:
            db.execute("BEGIN")  # All queries see the same snapshot.
            try:
                return _verify_log(db, key, tenant) if run_id is None else _verify_run(db, key, run_id, tenant)
            finally:
                db.execute("ROLLBACK")

        return await self._reader.query(work)


def _where(*, tenant: str | None = None, run_id: str | None = None) -> str:
    return (" AND tenant = :tenant" if tenant is not None else "") + (
        " AND run_id = :run_id" if run_id is not None else ""
    )


def _filter(only: EventFilter) -> str:
    sql = f" AND {_TOOL} GLOB :tool" if only.tool is not None else ""
    sql += " AND at >= :since" if only.since is not None else ""
    sql += " AND user = :user" if only.user is not None else ""
    return sql + (f" AND code IN ({', '.join(str(int(code)) for code in only.codes)})" if only.codes else "")


def _verify_log(db: sqlite3.Connection, key: LogKey, tenant: str | None) -> list[str]:
    """Return the problems of the whole log: missing or added runs, and the problems of each run.

    With a tenant, what is wrong within the runs of other tenants is left out.
    """
    ledger = Ledger(key)
    ledger.load(db)
    heads = [RunHead.of_row(row) for row in db.execute(f"{_RUNS} ORDER BY nr")]
    problems = ledger.find_breaks([head.seal for head in heads])
    for head in heads:
        if tenant in (None, head.tenant):
            name = f"run {head.run_id!r} of {head.tenant!r}"
            problems += [f"{name}: {problem}" for problem in _verify_head(db, key, head)]
    for run_id, owner, count in db.execute(_STRAY_EVENTS):
        if tenant in (None, owner):
            problems.append(f"run {run_id!r} of {owner!r}: it has no record, but {count} events")
    questions = db.execute(_STRAY_QUESTIONS + _where(tenant=tenant), {"tenant": tenant})
    return problems + list(_changed_questions(key, questions))


def _verify_run(db: sqlite3.Connection, key: LogKey, run_id: str, tenant: str | None) -> list[str]:
    """Return the problems of one run; without a tenant, of each tenant that has a run of this id."""
    sql = _RUNS + _where(tenant=tenant, run_id=run_id)
    heads = [RunHead.of_row(row) for row in db.execute(sql, {"run_id": run_id, "tenant": tenant})]
    if not heads:
        return [f"there is no run {run_id!r}"]
    return [problem for head in heads for problem in _verify_head(db, key, head)]


def _find_missing_rows(rows: Iterable[EventRow], questions: Container[str], journal: Container[str]) -> Iterator[str]:
    """Report rows of pending actions and journal entries that events mention and that are gone.

    Rows are written before the events that mention them. They are deleted together with the events (pruning), or
    together with what the events say (forgetting a person).
    """
    asked: dict[str, int] = {}
    recorded: dict[str, int] = {}
    for row in rows:
        if row.code in ASKED:
            asked[parse_payload(row.payload).get("pending_id", "")] = row.seq
            recorded.pop(row.call_id, None)  # A call that pauses takes its intent back.
        elif row.code in _ENDED and JOURNALED in row.payload and parse_payload(row.payload).get(JOURNALED) is True:
            recorded[row.call_id] = row.seq
    for question, seq in asked.items():
        if question and question not in questions:
            yield f"question {question!r} was removed, though event {seq} says that it was asked"
    for call_id, seq in recorded.items():
        if call_id not in journal:
            yield f"the journal entry of call {call_id!r} was removed, though event {seq} says that it was written"


def _verify_head(db: sqlite3.Connection, key: LogKey, head: RunHead) -> list[str]:
    rows = [EventRow(*row) for row in db.execute(_ROWS, (head.run_id, head.tenant))]
    problems = key.find_breaks(rows, last_seq=head.seq, last_hash=head.hash)
    if head.seal != head.make_seal(key):
        problems.append("the run's record (whose it is, which tool, how it stands) was changed")
    questions = db.execute(_QUESTIONS, (head.run_id, head.tenant)).fetchall()
    journal = {call_id for (call_id,) in db.execute(_JOURNAL, (head.run_id, head.tenant))}
    problems += find_second_answers(rows)
    problems += _find_missing_rows(rows, {id_ for id_, *_ in questions}, journal)
    return problems + list(_changed_questions(key, questions))


def _changed_questions(key: LogKey, rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    for *status, seal in rows:
        if seal != status_seal(key, tuple(status)):
            yield f"question {status[0]!r} was changed: how it stands, or who answered it"


class _OldRun(NamedTuple):
    run_id: str
    tenant: str
    user: str
    tool_name: str
    last_seq: int
    last_hash: bytes
    owner: str


class _OldEvent(NamedTuple):
    id: int
    seq: int
    code: int
    at: float
    call_id: str
    tenant: str
    payload: str
    hash: bytes


def open_ledger(db: sqlite3.Connection, sealer: RowSealer) -> Ledger:
    """Load the ledger of a log, or make one and migrate the events of versions that had none."""

    def make() -> Ledger:
        found = load_ledger(db, sealer)  # Another process may have been first.
        if found is not None:
            return found
        ledger = make_ledger(db, sealer)
        if ledger.is_intact:
            _migrate_unkeyed_log(db, ledger)
        return ledger

    return load_ledger(db, sealer) or in_transaction(db, make)


def _migrate_unkeyed_log(db: sqlite3.Connection, ledger: Ledger) -> None:
    """Move events and runs of a log without a key into the tables of a new ledger, in the caller's transaction.

    Each run is checked by the rule of its time. A run that was broken is moved without a seal, so that `verify`
    goes on to name it; the others are sealed as they are.
    """
    # Never into a ledger that has begun: whoever can write to the file could have put the old tables there.
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs_before'").fetchone():
        ledger.is_intact = False  # There was a ledger, and somebody removed it.
        ledger.save(db)
        return
    sequence = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events_before'").fetchone()
    ledger.last_event = sequence[0] if sequence else 0
    for row in [*db.execute(_OLD_RUNS).fetchall(), *db.execute(_OLD_STRAY_EVENTS).fetchall()]:
        _migrate_run(db, ledger, _OldRun(*row))
    ledger.save(db)
    db.execute("DROP TABLE events_before")
    db.execute("DROP TABLE runs_before")
    _seal_questions(db, ledger.key)


def _seal_questions(db: sqlite3.Connection, key: LogKey) -> None:
    for status in db.execute(f"SELECT {STATUS_COLUMNS} FROM pending").fetchall():  # noqa: S608 - constants
        db.execute("UPDATE pending SET seal = ? WHERE id = ?", (status_seal(key, status), status[0]))


def _migrate_run(db: sqlite3.Connection, ledger: Ledger, run: _OldRun) -> None:
    """Chain a run's events with the key; a run that two tenants shared becomes one run of each."""
    events = [_OldEvent(*row) for row in db.execute(_OLD_EVENTS, (run.run_id,))]
    is_broken = not _is_whole(run, events)
    for tenant in dict.fromkeys([run.tenant, *(event.tenant for event in events)]):
        mine = tenant == run.tenant
        user, tool_name = (run.user, run.tool_name) if mine else ("", "")
        call = CallRef(run.run_id, "", tool_name, tenant, user, "", dict)
        theirs = [event for event in events if event.tenant == tenant]
        head = _chain_old_events(db, ledger, call, theirs)
        if head is not None:
            seal = b"" if is_broken else head.make_seal(ledger.key)
            ledger.change(new=[seal])
            db.execute(_INSERT_RUN, (*head.columns(), seal, run.owner))


def _chain_old_events(
    db: sqlite3.Connection, ledger: Ledger, call: CallRef, events: Iterable[_OldEvent]
) -> RunHead | None:
    head: RunHead | None = None
    for event in events:
        ref = replace(call, call_id=event.call_id)
        if head is None:
            ledger.last_run, ledger.runs = ledger.last_run + 1, ledger.runs + 1
            head = RunHead.of_first(ref, event.at, ledger.last_run)
        same = RunEvent(EventCode(event.code), event.at, ref, {})
        db.execute(_INSERT_EVENT, head.advance(same, ref, event.id, ledger.key, event.payload))
        if not head.tool_name:
            head.tool_name = parse_payload(event.payload).get("tool_name", "")
    return head


def _is_whole(run: _OldRun, events: Sequence[_OldEvent]) -> bool:
    rows = [PlainRow(run.run_id, *event[1:]) for event in events]
    last = (rows[-1].seq, rows[-1].hash) if rows else (0, b"")
    return not find_plain_breaks(rows) and last == (run.last_seq, run.last_hash)
