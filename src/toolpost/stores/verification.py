"""Verification of the event log in SQLite: every event, every run, their number, and how questions stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.contracts.events import EventCode
from toolpost.stores.appender import HEAD_COLUMNS
from toolpost.stores.chain import EventRow, LogKey, read_facts
from toolpost.stores.ledger import Ledger
from toolpost.stores.runs import RunHead

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

ROW_COLUMNS = "id, run_id, seq, code, at, call_id, tenant, user, payload, hash, forgotten"
STANDING_COLUMNS = "id, call_id, run_id, tenant, user, status, created_at, expires_at, answered_by, answered_at"

_HEADS = f"SELECT {HEAD_COLUMNS} FROM runs"  # noqa: S608 - constants, here and below
_ROWS = f"SELECT {ROW_COLUMNS} FROM events WHERE run_id = ? AND tenant = ? ORDER BY seq"  # noqa: S608
_QUESTIONS = f"SELECT {STANDING_COLUMNS}, seal FROM pending WHERE run_id = ? AND tenant = ?"  # noqa: S608
_STRAY_EVENTS = """
SELECT run_id, tenant, count(*) FROM events GROUP BY run_id, tenant
HAVING NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = events.run_id AND runs.tenant = events.tenant)
"""
_STRAY_QUESTIONS = f"""
SELECT {STANDING_COLUMNS}, seal FROM pending
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = pending.run_id AND runs.tenant = pending.tenant)
"""  # noqa: S608
_ASKED = frozenset({int(EventCode.APPROVAL_REQUESTED), int(EventCode.CALL_PAUSED)})
_ANSWERED = frozenset({int(EventCode.APPROVAL_GRANTED), int(EventCode.APPROVAL_DENIED), int(EventCode.CALL_RESUMED)})


def verify_log(db: sqlite3.Connection, key: LogKey) -> list[str]:
    """What is wrong with a log as a whole: runs that are missing or added, and every run of it."""
    ledger = Ledger(key)
    ledger.load(db)
    heads = [RunHead.of_row(row) for row in db.execute(f"{_HEADS} ORDER BY nr")]
    problems = ledger.find_breaks([head.seal for head in heads])
    for head in heads:
        name = f"run {head.run_id!r} of {head.tenant!r}"
        problems += [f"{name}: {problem}" for problem in _verify_head(db, key, head)]
    for run_id, tenant, count in db.execute(_STRAY_EVENTS):
        problems.append(f"run {run_id!r} of {tenant!r}: it has no record, but {count} events")
    return problems + list(_changed_questions(key, db.execute(_STRAY_QUESTIONS)))


def verify_run(db: sqlite3.Connection, key: LogKey, run_id: str, tenant: str | None) -> list[str]:
    """What is wrong with one run; of each tenant that has one of this name where none is given."""
    meant = " WHERE run_id = :run_id" + ("" if tenant is None else " AND tenant = :tenant")
    heads = [RunHead.of_row(row) for row in db.execute(_HEADS + meant, {"run_id": run_id, "tenant": tenant})]
    if not heads:
        return [f"there is no run {run_id!r}"]
    return [problem for head in heads for problem in _verify_head(db, key, head)]


def answered_twice(rows: Iterable[EventRow]) -> Iterator[str]:
    """Questions that were answered again although nobody asked them again."""
    answered: set[str] = set()
    for row in rows:
        if row.code not in _ASKED | _ANSWERED:
            continue
        facts = read_facts(row.payload)
        question = facts.get("pending_id")
        if row.code in _ASKED:
            answered.discard(question)
        elif question is not None and not facts.get("recovered"):
            if question in answered:
                yield f"question {question!r} was answered a second time, by event {row.seq}"
            answered.add(question)


def standing_seal(key: LogKey, standing: tuple[Any, ...]) -> bytes:
    """The seal of how a question stands, of its `STANDING_COLUMNS`."""
    return key.seal("pending", *standing)


def _verify_head(db: sqlite3.Connection, key: LogKey, head: RunHead) -> list[str]:
    rows = [EventRow(*row) for row in db.execute(_ROWS, (head.run_id, head.tenant))]
    problems = key.find_breaks(rows, last_seq=head.seq, last_hash=head.hash)
    if head.seal != head.sealed(key):
        problems.append("the run's record (whose it is, which tool, how it stands) was changed")
    questions = db.execute(_QUESTIONS, (head.run_id, head.tenant))
    return [*problems, *answered_twice(rows), *_changed_questions(key, questions)]


def _changed_questions(key: LogKey, rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    for *standing, seal in rows:
        if seal != standing_seal(key, tuple(standing)):
            yield f"question {standing[0]!r} was changed: how it stands, or who answered it"
