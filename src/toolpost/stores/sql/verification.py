"""Verify the log of a store, and authenticate rows that grant rights.

A caller's key has a MAC over its columns. Journal entries and outcomes are encrypted with all that identifies their row
as associated data, so they cannot be moved to another call, tool or user.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.callers import CALLER_KEY_RUN
from toolpost.contracts.events import JOURNALED, EventCode, StoredEvent
from toolpost.stores.caller_key_rows import COLUMNS, describe_problem
from toolpost.stores.chain import CHANGED_RECORD, LogKey, Segment
from toolpost.stores.encrypted_columns import CALL_RECORDS, EncryptedColumn
from toolpost.stores.encryption import RowCipher
from toolpost.stores.ledger import Ledger
from toolpost.stores.pending_rows import STATUS_COLUMNS, status_mac
from toolpost.stores.run_heads import ASKED, RunHead, find_second_answers, join_codes
from toolpost.stores.sql.database import SQLConnection, where

if TYPE_CHECKING:
    from toolpost.contracts.storage import OnProgress

_HEADS = """
SELECT nr, run_id, tenant, "user", tool_name, status, started_at, updated_at, last_seq, mac, root_call, open_calls
FROM runs WHERE TRUE
"""
_RUNS_A_QUERY = 200  # a server verifies these in a tenth of the time that single runs take (measured 2026-11)
_SEGMENTS = """
SELECT run, last_id, run_id, tenant, seq, call_id, segments."user", segments.tool_name, correlation_id, events, hash,
    forgotten, codes, first_at, last_at
FROM segments JOIN runs ON runs.nr = segments.run WHERE run = ANY(:runs) ORDER BY run, seq
"""
_QUESTIONS = f"SELECT run_id, tenant, {STATUS_COLUMNS}, mac FROM pending WHERE run_id = ANY(:ids)"  # noqa: S608 - constants, here and below
_JOURNAL = "SELECT run_id, tenant, call_id FROM journal WHERE run_id = ANY(:ids) AND step = ''"
_STRAY_SEGMENTS = """
SELECT run, count(*) FROM segments WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.nr = segments.run) GROUP BY run
"""
_STRAY_QUESTIONS = f"""
SELECT {STATUS_COLUMNS}, mac FROM pending
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = pending.run_id AND runs.tenant = pending.tenant)
"""  # noqa: S608
_CALLER_KEYS = f"SELECT {COLUMNS}, mac FROM caller_keys WHERE TRUE"  # noqa: S608
_KEY_EVENTS = "SELECT events FROM segments JOIN runs ON runs.nr = segments.run WHERE runs.run_id = :run_id"
_ENDED = frozenset({int(EventCode.TOOL_CALL_COMPLETED), int(EventCode.TOOL_CALL_FAILED)})


def verify_log(
    db: SQLConnection, ledger: Ledger, cipher: RowCipher, tenant: str | None, on_progress: OnProgress | None = None
) -> list[str]:
    """Return the problems of the whole log: missing or added runs, the problems of each run, and changed rows.

    `ledger` contains the expected sums of the log. With a tenant, problems of other tenants' runs are not reported.
    """
    key = ledger.key
    heads = [RunHead(*row) for row in db.execute(f"{_HEADS} ORDER BY nr")]
    problems = ledger.find_breaks([head.mac for head in heads])
    heads = [head for head in heads if tenant in (None, head.tenant)]
    for verified, (head, found) in enumerate(_verify_heads(db, key, heads), 1):
        if on_progress is not None and (verified % _RUNS_A_QUERY == 0 or verified == len(heads)):
            on_progress(verified, len(heads))
        problems += [f"run {head.run_id!r} of {head.tenant!r}: {problem}" for problem in found]
    for nr, count in db.execute(_STRAY_SEGMENTS):
        problems.append(f"run number {nr}: it has no record, but {count} {'row' if count == 1 else 'rows'} of events")
    problems += _changed_questions(key, db.execute(_STRAY_QUESTIONS + where(tenant=tenant), {"tenant": tenant}))
    return problems + list(_find_changed_rows(db, key, cipher, tenant=tenant))


def verify_run(db: SQLConnection, key: LogKey, cipher: RowCipher, run_id: str, tenant: str | None) -> list[str]:
    """Return the problems of one run; without a tenant, of each tenant that has a run of this id."""
    values = {"run_id": run_id, "tenant": tenant}
    heads = [RunHead(*row) for row in db.execute(_HEADS + where(**values), values)]
    if not heads:
        problems = [f"there is no run {run_id!r}"]
    else:
        problems = [problem for _, found in _verify_heads(db, key, heads) for problem in found]
    return problems + list(_find_changed_rows(db, key, cipher, tenant=tenant, run_id=run_id))


class _RunRows(NamedTuple):
    """The rows of a run: its segments, its questions, and the calls that have a journal entry."""

    segments: list[tuple[Any, ...]]
    questions: list[tuple[Any, ...]]
    journal: set[str]


def _verify_heads(db: SQLConnection, key: LogKey, heads: Sequence[RunHead]) -> Iterator[tuple[RunHead, list[str]]]:
    for start in range(0, len(heads), _RUNS_A_QUERY):
        some = heads[start : start + _RUNS_A_QUERY]
        rows = _read_rows(db, some)
        for head in some:
            yield head, _verify_head(key, head, rows[head.nr])


def _read_rows(db: SQLConnection, heads: Sequence[RunHead]) -> dict[int, _RunRows]:
    """Return the rows of runs by their numbers."""
    rows = {head.nr: _RunRows([], [], set()) for head in heads}
    named = {(head.run_id, head.tenant): rows[head.nr] for head in heads}
    for nr, *segment in db.execute(_SEGMENTS, {"runs": [*rows]}):
        rows[nr].segments.append(tuple(segment))
    ids = {"ids": [str(run_id) for run_id, _ in named]}
    for run_id, tenant, *question in db.execute(_QUESTIONS, ids):
        if (run_id, tenant) in named:
            named[run_id, tenant].questions.append(tuple(question))
    for run_id, tenant, call_id in db.execute(_JOURNAL, ids):
        if (run_id, tenant) in named:
            named[run_id, tenant].journal.add(call_id)
    return rows


def _verify_head(key: LogKey, head: RunHead, rows: _RunRows) -> list[str]:
    try:
        return _find_problems(key, head, rows)
    except (AttributeError, TypeError) as error:  # SQLite stores values of any type in any column
        return [f"a row of it contains a value that Toolpost never writes: {error}"]


def _find_problems(key: LogKey, head: RunHead, rows: _RunRows) -> list[str]:
    segments = [(segment, segment.unpack()) for segment in (Segment(*row[:-3]) for row in rows.segments)]
    events = [event for _, unpacked in segments for event in unpacked]
    problems = key.find_breaks(segments, head.chain_start, last_seq=head.seq, mac=head.mac)
    if not problems:
        problems += [
            f"the columns that filters use for event {segment.seq} were changed"
            for (segment, unpacked), row in zip(segments, rows.segments, strict=True)
            if unpacked
            and tuple(row[-3:])
            != (join_codes(tuple(map(int, (one.code for one in unpacked)))), unpacked[0].at, unpacked[-1].at)
        ]
    if not problems and not head.agrees_with(events):
        problems.append(CHANGED_RECORD)
    problems += find_second_answers(events)
    problems += _find_missing_rows(events, {id_ for id_, *_ in rows.questions}, rows.journal)
    return problems + list(_changed_questions(key, rows.questions))


def _find_missing_rows(
    events: Iterable[StoredEvent], questions: Container[str], journal: Container[str]
) -> Iterator[str]:
    """Report rows of pending actions and journal entries that events mention and that are gone.

    Rows are written before the events that mention them. They are deleted together with the events (pruning), or
    together with the facts of the events (erasing a user).
    """
    asked: dict[str, int] = {}
    recorded: dict[str, int] = {}
    for event in events:
        if event.code in ASKED:
            asked[event.payload.get("pending_id", "")] = event.seq
            recorded.pop(event.call_id, None)  # a call that pauses removes its intent
        elif event.code in _ENDED and event.payload.get(JOURNALED) is True:
            recorded[event.call_id] = event.seq
    for question, seq in asked.items():
        if question and question not in questions:
            yield f"question {question!r} was removed, although event {seq} reports that it was created"
    for call_id, seq in recorded.items():
        if call_id not in journal:
            yield f"the journal entry of call {call_id!r} was removed, although event {seq} reports that it was written"


def _changed_questions(key: LogKey, rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    for *status, mac in rows:
        if mac != status_mac(key, tuple(status)):
            yield f"question {status[0]!r} was changed: its status, or the user who answered it"


def _find_changed_rows(
    db: SQLConnection, key: LogKey, cipher: RowCipher, *, tenant: str | None, run_id: str | None = None
) -> Iterator[str]:
    """Report rows that were changed or added without the key; with a run, only its journal entries."""
    for column in CALL_RECORDS:
        if run_id is None or "run_id" in column.named_by:
            yield from _changed_records(db, cipher, column, {"tenant": tenant, "run_id": run_id})
    if run_id is None:
        revoked = _revoked_keys(db)
        sql = f"{_CALLER_KEYS}{where(tenant=tenant)} ORDER BY created_at, id"
        for row in db.execute(sql, {"tenant": tenant}):
            problem = describe_problem(key, row, revoked)
            if problem is not None:
                yield problem


def _revoked_keys(db: SQLConnection) -> set[str]:
    """Return the IDs of revoked keys, as far as the log still contains their events."""
    found = set[str]()
    for (events,) in db.execute(_KEY_EVENTS, {"run_id": CALLER_KEY_RUN}):
        try:
            entries = json.loads(events)
            found |= {facts["key_id"] for code, _, facts in entries if code == EventCode.CALLER_KEY_REVOKED}
        except (ValueError, TypeError, KeyError):  # damaged, which the check of its run reports
            continue
    return found


def _changed_records(
    db: SQLConnection, cipher: RowCipher, column: EncryptedColumn, values: dict[str, Any]
) -> Iterator[str]:
    cell = column.column
    conditions = where(**values)
    sql = f"SELECT {cell}, call_id, {column.names} FROM {column.table} WHERE {cell} IS NOT NULL{conditions}"  # noqa: S608
    for body, call_id, *named in db.execute(sql, values):
        if not column.opens(cipher, body, tuple(named)):
            yield column.describe_change(call_id, tuple(named))
