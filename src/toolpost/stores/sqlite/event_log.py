"""The event log in SQLite: emit, read and verify events."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from toolpost.contracts.events import (
    CallRef,
    EventCode,
    EventFilter,
    RunDetails,
    RunEvent,
    RunFilter,
    RunSummary,
    StoredEvent,
)
from toolpost.contracts.storage import OnProgress, WriteHealth
from toolpost.stores.chain import Segment
from toolpost.stores.ledger import Ledger
from toolpost.stores.run_heads import RunHead, find_open_calls
from toolpost.stores.sql.caller_calls import calls_by
from toolpost.stores.sql.database import SQLConnection, where
from toolpost.stores.sql.event_filters import matches, run_conditions, run_values
from toolpost.stores.sql.run_details import describe_stored_run
from toolpost.stores.sql.verification import verify_log, verify_run
from toolpost.stores.sqlite.context import SQLiteContext
from toolpost.stores.sqlite.event_appender import HEAD_COLUMNS, load_ledger
from toolpost.stores.sqlite.shared_statements import SQLiteDatabase, SQLiteStatements
from toolpost.stores.topics import EVENTS, run_topic

SEGMENTS = """
SELECT last_id, run_id, tenant, seq, call_id, segments.user, segments.tool_name, correlation_id, events, hash, forgotten
FROM segments JOIN runs ON runs.nr = segments.run
"""

_NEWER = f"{SEGMENTS} WHERE last_id > :after"
# These read the index alone, and then only the rows that match.
_FIND = "SELECT last_id FROM segments INDEXED BY segments_filters WHERE last_id > :after"
# The event before `before` may be within a segment.
_OLDER = " AND last_id <= ifnull((SELECT min(last_id) FROM segments WHERE last_id >= :before - 1), :before)"
_THESE = f"{SEGMENTS} WHERE last_id IN (SELECT value FROM json_each(?)) ORDER BY last_id"  # noqa: S608 - constants, here and below
_OF_TENANT = " AND (SELECT tenant FROM runs WHERE nr = run) = :tenant"
_FETCHED = 200  # rows at a time
# The events of a tenant with few runs are found by these.
_FEW = 1000
_COUNT_FEW = f"SELECT count(*) FROM (SELECT 1 FROM runs WHERE tenant = :tenant LIMIT {_FEW})"  # noqa: S608
_OF_FEW = f"{SEGMENTS} WHERE run IN (SELECT nr FROM runs WHERE tenant = :tenant) AND +last_id > :after"  # noqa: S608
# The plus makes SQLite use the index of runs instead of scanning all IDs in order.
_OF_RUN = f"""
{SEGMENTS} WHERE run = (SELECT nr FROM runs WHERE run_id = :run_id AND tenant = :tenant) AND +last_id > :after
"""  # noqa: S608
_OF_EACH_TENANT = f"{SEGMENTS} WHERE run IN (SELECT nr FROM runs WHERE run_id = :run_id) AND +last_id > :after"  # noqa: S608
_RUNS = f"SELECT {HEAD_COLUMNS} FROM runs WHERE TRUE"  # noqa: S608
_CALLED = " AND root_call <> ''"  # events of sources and of the catalog belong to no call
_BEFORE = " AND nr < (SELECT max(nr) FROM runs WHERE run_id = :before AND (:tenant IS NULL OR tenant = :tenant))"
# A run that waits for an answer has an open call, too, but is not an orphan.
_ORPHANED = """
open_calls > 0 AND (status = 'running' OR open_calls > (
    SELECT count(*) FROM pending WHERE pending.run_id = runs.run_id AND pending.tenant = runs.tenant
    AND pending.status IN ('open', 'claimed')
))
"""
_RUNNERS = f"SELECT DISTINCT owner FROM runs WHERE {_ORPHANED}"  # noqa: S608
_ADOPT = f"UPDATE runs SET owner = ? WHERE owner = ? AND {_ORPHANED} RETURNING {HEAD_COLUMNS}"  # noqa: S608
# Requests and starts are the first half of most calls, and are not counted; the codes that are counted begin so.
_NEXT = """
SELECT last_id, tenant, segments.user, segments.tool_name, CASE WHEN codes GLOB '*4[1-4]*' THEN events ELSE '[]' END
FROM segments JOIN runs ON runs.nr = segments.run
WHERE last_id > :after ORDER BY last_id LIMIT :limit
"""
# LIKE copies nothing: it takes a third of the time of instr and lower.
_HAS_TEXT = "{} LIKE :q ESCAPE '\\'"


class SQLiteEventLog:
    """Append-only log of events; reading flushes first, and therefore includes all events of this process."""

    def __init__(self, shared: SQLiteContext) -> None:
        self._shared = shared
        self._now = shared.clock.wall

    def emit(self, event: RunEvent) -> None:
        self._shared.writer.put(event)

    def record(self, call: CallRef, code: EventCode, facts: Mapping[str, Any]) -> None:
        self._shared.writer.put(RunEvent(code, self._now(), call, facts))

    @property
    def congested(self) -> bool:
        return self._shared.writer.congested

    @property
    def health(self) -> WriteHealth:
        return self._shared.writer.health

    async def drain(self) -> None:
        await self._shared.writer.drain()

    async def flush(self) -> None:
        await self._shared.writer.flush()

    async def read(
        self,
        *,
        tenant: str | None = None,
        run_id: str | None = None,
        after: int = 0,
        before: int | None = None,
        limit: int = 1000,
        only: EventFilter | None = None,
        newest: bool = False,
    ) -> list[StoredEvent]:
        await self._shared.writer.flush()
        only = only or EventFilter()
        order = " DESC" if newest else ""
        values: dict[str, Any] = {"after": after, "before": before, "tenant": tenant, "run_id": run_id}
        values |= {"tool": only.tool, "since": only.since, "until": only.until, "user": only.user}

        def find(db: sqlite3.Connection) -> Iterable[tuple[Any, ...]]:
            if run_id is not None and tenant is None:
                return db.execute(f"{_OF_EACH_TENANT}{_filter(only)} ORDER BY +last_id{order}", values)
            if run_id is not None:  # by the index; the IDs of a run increase with it
                return db.execute(f"{_OF_RUN}{_filter(only)} ORDER BY seq{order}", values)
            if tenant is None and before is None and only == EventFilter():
                return db.execute(f"{_NEWER} ORDER BY last_id{order}", values)
            if tenant is not None and db.execute(_COUNT_FEW, values).fetchone()[0] < _FEW:
                return db.execute(f"{_OF_FEW}{_filter(only)} ORDER BY +last_id{order}", values)
            sql = _FIND + _filter(only) + (_OLDER if before is not None else "")
            return _fetch(db, f"{sql}{_OF_TENANT if tenant is not None else ''} ORDER BY last_id{order}", values, order)

        def work(db: sqlite3.Connection) -> list[StoredEvent]:
            calls = None if only.caller is None else {call_id for _, call_id in _calls_by(db, only.caller)}
            rows = find(db)
            segments = (Segment(*row).unpack() for row in rows)
            ordered = (event for events in segments for event in (reversed(events) if newest else events))
            found = (
                event
                for event in ordered
                if event.id > after
                and (before is None or event.id < before)
                and matches(event, only)
                and (calls is None or event.call_id in calls)
            )
            events = list(islice(found, max(0, limit)))
            return events[::-1] if newest else events

        return await self._shared.reader.query(work)

    async def wait(self, after: int, *, timeout_s: float, run: tuple[str, str] | None = None) -> int:
        topic = EVENTS if run is None else run_topic(*run)
        newest: int = (await self._shared.changes.wait({topic: after}, timeout_s=timeout_s))[topic]
        return newest

    async def runs(
        self,
        *,
        tenant: str | None = None,
        before: str | None = None,
        limit: int = 50,
        only: RunFilter | None = None,
    ) -> list[RunSummary]:
        await self._shared.writer.flush()
        only = only or RunFilter()
        found = f"SELECT nr FROM runs WHERE TRUE{_CALLED}{where(tenant=tenant)}{_conditions(only)}"  # noqa: S608
        found += (_BEFORE if before is not None else "") + " ORDER BY nr DESC"
        if only.caller is None:
            found += " LIMIT :limit"
        # Sorting the numbers alone takes a tenth of the time of sorting the rows.
        sql = f"SELECT {HEAD_COLUMNS} FROM runs WHERE nr IN ({found}) ORDER BY nr DESC"  # noqa: S608
        values = {**run_values(only), "tenant": tenant, "before": before, "limit": max(0, limit)}

        def work(db: sqlite3.Connection) -> list[RunSummary]:
            called = None if only.caller is None else {nr for nr, _ in _calls_by(db, only.caller)}
            heads = (RunHead(*row) for row in db.execute(sql, values))
            wanted = (head for head in heads if called is None or head.nr in called)
            return [head.summary() for head in islice(wanted, max(0, limit))]

        return await self._shared.reader.query(work)

    async def count_runs(self, *, tenant: str | None = None, only: RunFilter | None = None) -> int:
        await self._shared.writer.flush()
        only = only or RunFilter()
        sql = f"SELECT nr FROM runs WHERE TRUE{_CALLED}{where(tenant=tenant)}{_conditions(only)}"  # noqa: S608
        values = {**run_values(only), "tenant": tenant}

        def work(db: sqlite3.Connection) -> int:
            if only.caller is None:
                count: int = db.execute(f"SELECT count(*) FROM ({sql})", values).fetchone()[0]  # noqa: S608
                return count
            called = {nr for nr, _ in _calls_by(db, only.caller)}
            return sum(nr in called for (nr,) in db.execute(sql, values))

        return await self._shared.reader.query(work)

    async def run_details(self, runs: Sequence[RunSummary]) -> list[RunDetails]:
        await self._shared.writer.flush()

        def work(db: sqlite3.Connection) -> list[RunDetails]:
            return [describe_stored_run(SQLiteStatements(db), run) for run in runs]

        return await self._shared.reader.query(work)

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        await self._shared.writer.flush()
        sql = _RUNS + where(tenant=tenant, run_id=run_id) + " ORDER BY nr"
        row = await self._shared.reader.query(
            lambda db: db.execute(sql, {"tenant": tenant, "run_id": run_id}).fetchone()
        )
        return RunHead(*row).summary() if row else None

    async def adopt_orphans(self) -> list[RunSummary]:
        def work(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            self._shared.appender.save_heads(db)  # a run that ended in this transaction is not an orphan
            dead = [owner for (owner,) in db.execute(_RUNNERS).fetchall() if not self._shared.liveness.alive(owner)]
            return [row for owner in dead for row in db.execute(_ADOPT, (self._shared.owner_id, owner)).fetchall()]

        return [RunHead(*row).summary() for row in await self._shared.writer.submit(work)]

    async def open_calls(self, run_id: str, *, tenant: str) -> list[RunSummary]:
        await self._shared.writer.flush()
        sql, values = f"{_OF_RUN} ORDER BY seq", {"run_id": run_id, "tenant": tenant, "after": 0}
        rows = await self._shared.reader.query(lambda db: db.execute(sql, values).fetchall())
        return find_open_calls(event for row in rows for event in Segment(*row).unpack())

    async def verify(
        self, run_id: str | None = None, *, tenant: str | None = None, on_progress: OnProgress | None = None
    ) -> list[str]:
        await self._shared.writer.flush()
        key, cipher = self._shared.appender.ledger.key, self._shared.cipher

        def work(db: sqlite3.Connection) -> list[str]:
            shared = SQLiteDatabase(db, self._shared)
            db.execute("BEGIN")  # all queries see the same snapshot
            try:
                if run_id is not None:
                    return verify_run(shared, key, cipher, run_id, tenant)
                ledger = Ledger(key)
                load_ledger(db, ledger)
                return verify_log(shared, ledger, cipher, tenant, on_progress)
            finally:
                db.execute("ROLLBACK")

        return await self._shared.reader.query(work)


def read_next_segments(db: SQLConnection, after: int, limit: int) -> list[tuple[Any, ...]]:
    """Return the position, the tenant, user and tool, and the events to count of the next segments."""
    return db.execute(_NEXT, {"after": after, "limit": limit}).fetchall()


def _filter(only: EventFilter) -> str:
    """Return the conditions of segments that may contain matching events; `matches` checks each event."""
    sql = " AND segments.tool_name GLOB :tool" if only.tool is not None else ""
    sql += " AND last_at >= :since" if only.since is not None else ""
    sql += " AND first_at <= :until" if only.until is not None else ""
    sql += " AND segments.user = :user" if only.user is not None else ""
    if only.codes:
        sql += " AND (" + " OR ".join([f"instr(codes, '{int(code)}')" for code in sorted(only.codes)]) + ")"
    return sql


def _fetch(db: sqlite3.Connection, sql: str, values: Mapping[str, Any], order: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the segments that a query finds, in its order, a page at a time."""
    found = db.execute(sql, values)
    while ids := [last_id for (last_id,) in found.fetchmany(_FETCHED)]:
        yield from db.execute(_THESE + order, (json.dumps(ids),)).fetchall()


def _calls_by(db: sqlite3.Connection, caller: str) -> Iterator[tuple[int, str]]:
    return calls_by(SQLiteStatements(db), caller)


def _conditions(only: RunFilter) -> str:
    return run_conditions(only, like_tool="GLOB :tool", has_text=_HAS_TEXT)
