"""The event log in PostgreSQL: emit, read and verify events."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from psycopg import IsolationLevel

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
from toolpost.stores.postgres.changes import HORIZON
from toolpost.stores.postgres.context import PostgresContext
from toolpost.stores.postgres.database import Connection, constant
from toolpost.stores.postgres.event_appender import HEAD_COLUMNS
from toolpost.stores.postgres.shared_statements import PostgresDatabase, PostgresStatements
from toolpost.stores.run_heads import RunHead, find_open_calls
from toolpost.stores.sql.caller_calls import calls_by
from toolpost.stores.sql.database import SQLConnection, where
from toolpost.stores.sql.event_filters import is_pattern, matches, run_conditions, run_values
from toolpost.stores.sql.run_details import describe_stored_run
from toolpost.stores.sql.verification import verify_log, verify_run
from toolpost.stores.topics import EVENTS, run_topic

FINAL_S = 0.5  # how long a reader waits for the transactions that were open when it began
_FINAL_POLL_S = 0.002
_PAGE = 200  # segments
_SEGMENTS = """
SELECT last_id, run_id, tenant, seq, call_id, segments."user", segments.tool_name, correlation_id, events, hash,
    forgotten
FROM segments JOIN runs ON runs.nr = segments.run
"""
_OLDEST_OPEN = """
SELECT pg_snapshot_xmin(current)::text::bigint, pg_snapshot_xmax(current)::text::bigint, EXISTS (
    SELECT 1 FROM segments
    WHERE last_id >= (pg_snapshot_xmin(current)::text::bigint - (SELECT event_base FROM meta)) << 12
) FROM pg_current_snapshot() AS current
"""
# The events of a tenant with few runs are found by these.
_FEW = 1000
_OF_TENANT = f"SELECT nr FROM runs WHERE tenant = :tenant LIMIT {_FEW}"  # noqa: S608 - constants, here and below
# The event before `before` may be within a segment.
_OLDER = """
AND last_id <= coalesce((SELECT min(last_id) FROM segments WHERE last_id >= %(before)s - 1), %(before)s)
"""
_RUNS = f"SELECT {HEAD_COLUMNS} FROM runs WHERE TRUE"  # noqa: S608
_CALLED = " AND root_call <> ''"  # events of sources and of the catalog belong to no call
# A run that waits for an answer has an open call, too, but is not an orphan.
_ORPHANED = """
open_calls > 0 AND (status = 'running' OR open_calls > (
    SELECT count(*) FROM pending WHERE pending.run_id = runs.run_id AND pending.tenant = runs.tenant
    AND pending.status IN ('open', 'claimed')
))
"""
_RUNNERS = f"SELECT DISTINCT owner FROM runs WHERE {_ORPHANED}"  # noqa: S608
_ADOPT = f"UPDATE runs SET owner = %s WHERE owner = ANY(%s) AND {_ORPHANED} RETURNING {HEAD_COLUMNS}"  # noqa: S608
_NEXT = f"""
SELECT last_id, tenant, segments."user", segments.tool_name, events FROM segments JOIN runs ON runs.nr = segments.run
WHERE last_id > :after AND last_id < {HORIZON} ORDER BY last_id LIMIT :limit
"""  # noqa: S608
_LEDGER = "SELECT last_event, last_run, runs, total, mac FROM ledger"
_LEDGERS = "SELECT last_event, last_run, runs, total, mac FROM owners"


class PostgresEventLog:
    """Append-only log of events; reading flushes first, and therefore includes all events of this process.

    Events of several runs are read up to the oldest transaction that is still open, because it may add events before
    those of others. The reader waits for it for a moment.
    """

    def __init__(self, shared: PostgresContext) -> None:
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
        tool = None if only.tool is None else _glob_to_regex(only.tool)
        values: dict[str, Any] = {"after": after, "before": before, "tenant": tenant, "run_id": run_id, "tool": tool}
        values |= {"since": only.since, "until": only.until, "user": only.user, "codes": [*map(str, only.codes or ())]}

        def work(db: Connection) -> list[StoredEvent]:
            calls = None if only.caller is None else {call_id for _, call_id in _calls_by(db, only.caller)}
            conditions = _filter(only) + (_OLDER if before is not None else "")
            pages = _find(db, conditions, values, newest=newest)
            segments = (Segment(*row).unpack() for row in pages)
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
        of_tenant = where(tenant=tenant)
        sql = f"{_RUNS}{_CALLED}{of_tenant}{_conditions(only)}"
        if before is not None:
            sql += f" AND nr < (SELECT max(nr) FROM runs WHERE run_id = :before{of_tenant})"  # noqa: S608
        sql += " ORDER BY nr DESC" + (" LIMIT :limit" if only.caller is None else "")
        values = {**_values(only), "tenant": tenant, "before": before, "limit": max(0, limit)}

        def work(db: Connection) -> list[RunSummary]:
            called = None if only.caller is None else {nr for nr, _ in _calls_by(db, only.caller)}
            heads = (RunHead(*row) for row in PostgresStatements(db).execute(sql, values))
            wanted = (head for head in heads if called is None or head.nr in called)
            return [head.summary() for head in islice(wanted, max(0, limit))]

        return await self._shared.reader.query(work)

    async def count_runs(self, *, tenant: str | None = None, only: RunFilter | None = None) -> int:
        await self._shared.writer.flush()
        only = only or RunFilter()
        sql = f"SELECT nr FROM runs WHERE TRUE{_CALLED}{where(tenant=tenant)}{_conditions(only)}"  # noqa: S608
        values = {**_values(only), "tenant": tenant}

        def work(db: Connection) -> int:
            statements = PostgresStatements(db)
            if only.caller is None:
                ((count,),) = statements.execute(f"SELECT count(*) FROM ({sql}) AS found", values).fetchall()  # noqa: S608
                return int(count)
            called = {nr for nr, _ in calls_by(statements, only.caller)}
            return sum(nr in called for (nr,) in statements.execute(sql, values))

        return await self._shared.reader.query(work)

    async def run_details(self, runs: Sequence[RunSummary]) -> list[RunDetails]:
        await self._shared.writer.flush()

        def work(db: Connection) -> list[RunDetails]:
            return [describe_stored_run(PostgresStatements(db), run) for run in runs]

        return await self._shared.reader.query(work)

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        await self._shared.writer.flush()
        sql = f"{_RUNS}{where(tenant=tenant, run_id=run_id)} ORDER BY nr LIMIT 1"
        values = {"tenant": tenant, "run_id": run_id}
        row = await self._shared.reader.query(lambda db: PostgresStatements(db).execute(sql, values).fetchone())
        return RunHead(*row).summary() if row else None

    async def adopt_orphans(self) -> list[RunSummary]:
        def work(db: Connection) -> list[tuple[Any, ...]]:
            self._shared.appender.save_heads(db)  # a run that ended in this transaction is not an orphan
            runners = [owner for (owner,) in db.execute(_RUNNERS)]
            dead = self._shared.liveness.ended(db, runners) if runners else []
            return db.execute(_ADOPT, (self._shared.owner_id, dead)).fetchall() if dead else []

        return [RunHead(*row).summary() for row in await self._shared.writer.submit(work)]

    async def open_calls(self, run_id: str, *, tenant: str) -> list[RunSummary]:
        await self._shared.writer.flush()
        values = {"run_id": run_id, "tenant": tenant, "after": 0}
        rows = await self._shared.reader.query(lambda db: list(_find(db, "", values, newest=False)))
        return find_open_calls(event for row in rows for event in Segment(*row).unpack())

    async def verify(
        self, run_id: str | None = None, *, tenant: str | None = None, on_progress: OnProgress | None = None
    ) -> list[str]:
        await self._shared.writer.flush()
        key, cipher = self._shared.key, self._shared.cipher

        def work(db: Connection) -> list[str]:
            shared = PostgresDatabase(db, self._shared)
            db.isolation_level = IsolationLevel.REPEATABLE_READ  # all queries see the same snapshot
            try:
                with db.transaction():
                    if run_id is not None:
                        return verify_run(shared, key, cipher, run_id, tenant)
                    return verify_log(shared, _load_ledgers(db, Ledger(key)), cipher, tenant, on_progress)
            finally:
                db.isolation_level = None

        return await self._shared.reader.query(work)


def read_next_segments(db: SQLConnection, after: int, limit: int) -> list[tuple[Any, ...]]:
    """Return the position, the tenant, user and tool, and the events of the next segments."""
    return db.execute(_NEXT, {"after": after, "limit": limit}).fetchall()


def _find(db: Connection, conditions: str, values: dict[str, Any], *, newest: bool) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of segments in the order of their positions, a page at a time."""
    if values["run_id"] is not None:
        sql = f"SELECT nr FROM runs WHERE TRUE{where(run_id=values['run_id'], tenant=values['tenant'])}"  # noqa: S608
        runs: list[int] | None = [nr for (nr,) in PostgresStatements(db).execute(sql, values)]
    else:
        _await_open(db)
        conditions += f" AND last_id < {HORIZON}"
        runs = None
        if values["tenant"] is not None:
            of_tenant = [nr for (nr,) in PostgresStatements(db).execute(_OF_TENANT, values)]
            runs = of_tenant if len(of_tenant) < _FEW else None
            conditions += " AND runs.tenant = %(tenant)s" if runs is None else ""
    # Without the zero, PostgreSQL may walk through the positions of all runs.
    order = "last_id"
    if runs is not None:
        conditions, order = f"{conditions} AND run = ANY(%(runs)s)", "last_id + 0"
    next_page, direction = (" AND last_id < %(end)s", "DESC") if newest else (" AND last_id > %(end)s", "ASC")
    sql = f"{_SEGMENTS} WHERE last_id > %(after)s{conditions}"
    values = {**values, "runs": runs, "end": None}
    while True:
        page_sql = f"{sql}{next_page if values['end'] is not None else ''} ORDER BY {order} {direction} LIMIT {_PAGE}"
        page = db.execute(constant(page_sql), values).fetchall()
        yield from page
        if len(page) < _PAGE:
            return
        values["end"] = page[-1][0]


def _await_open(db: Connection) -> None:
    """Wait until the transactions have ended that are open now, if they hide events that were committed."""
    deadline, last_open = time.monotonic() + FINAL_S, None
    while True:
        ((oldest, next_one, hides),) = db.execute(_OLDEST_OPEN).fetchall()
        last_open = next_one if last_open is None else last_open
        if not hides or oldest >= last_open or time.monotonic() > deadline:
            return
        time.sleep(_FINAL_POLL_S)


def _filter(only: EventFilter) -> str:
    """Return the conditions of segments that may contain matching events; `matches` checks each event."""
    sql = " AND segments.tool_name ~ %(tool)s" if only.tool is not None else ""
    sql += " AND last_at >= %(since)s" if only.since is not None else ""
    sql += " AND first_at <= %(until)s" if only.until is not None else ""
    sql += ' AND segments."user" = %(user)s' if only.user is not None else ""
    return sql + (" AND string_to_array(codes, ' ') && %(codes)s::text[]" if only.codes else "")


def _glob_to_regex(pattern: str) -> str:
    """Return the regular expression of PostgreSQL for a pattern with `*`, `?` and `[...]`, as SQLite's GLOB has it."""
    parts: list[str] = []
    place = 0
    while place < len(pattern):
        char = pattern[place]
        end = pattern.find("]", place + 2) if char == "[" else -1
        if end > 0:
            inside = pattern[place + 1 : end].replace("\\", "\\\\")
            parts.append(f"[{inside}]")
            place = end
        else:
            parts.append({"*": ".*", "?": "."}.get(char) or (char if char.isalnum() else f"\\{char}"))
        place += 1
    return f"^(?:{''.join(parts)})$"


def _conditions(only: RunFilter) -> str:
    return run_conditions(only, like_tool="~ :tool", has_text="{} ILIKE :q")


def _values(only: RunFilter) -> dict[str, Any]:
    values = run_values(only)
    if only.tool is not None and is_pattern(only.tool):
        values["tool"] = _glob_to_regex(only.tool)
    return values


def _calls_by(db: Connection, caller: str) -> Iterator[tuple[int, str]]:
    return calls_by(PostgresStatements(db), caller)


def _load_ledgers(db: Connection, ledger: Ledger) -> Ledger:
    """Return the sum of the ledger and the parts of all owners; it is not intact if one of them is missing."""
    main: Iterable[tuple[Any, ...]] = db.execute(_LEDGER).fetchall()
    parts = db.execute(_LEDGERS).fetchall()
    for row in (*main, *parts):
        part = Ledger(ledger.key)
        part.read(row)
        ledger.add(part)
    ledger.is_intact = ledger.is_intact and [row[1] for row in main] == [len(parts)]
    return ledger
