"""The event log in SQLite: events go to the writer, are read back beside it, and prove themselves unchanged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from toolpost.contracts.events import EventFilter, RunEvent, RunSummary, StoredEvent
from toolpost.stores.appender import EventAppender
from toolpost.stores.chain import EventRow, stored_event
from toolpost.stores.liveness import Liveness
from toolpost.stores.reader import Reader
from toolpost.stores.runs import find_open_calls
from toolpost.stores.verification import ROW_COLUMNS, verify_log, verify_run
from toolpost.stores.writer import Writer

T = TypeVar("T")

_EVENTS = f"SELECT {ROW_COLUMNS} FROM events WHERE id > :after"  # noqa: S608 - constants, here and below
_OF_RUN = f"SELECT {ROW_COLUMNS} FROM events WHERE run_id = ? AND tenant = ? ORDER BY seq"  # noqa: S608
_COLUMNS = "run_id, tenant, user, tool_name, status, started_at, updated_at, last_seq, root_call"
_RUNS = f"SELECT {_COLUMNS} FROM runs WHERE TRUE"  # noqa: S608
_CALLED = " AND root_call <> ''"  # notices of sources and of the catalog belong to no call, so that nobody ran them
_TOOL = "CASE WHEN json_valid(payload) THEN json_extract(payload, '$.tool_name') END"
# A run that waits for a person has an open call, too, and nothing of it is lost.
_ORPHANED = """
open_calls > 0 AND (status = 'running' OR open_calls > (
    SELECT count(*) FROM pending WHERE pending.run_id = runs.run_id AND pending.tenant = runs.tenant
    AND pending.status IN ('open', 'claimed')
))
"""
_RUNNERS = f"SELECT DISTINCT owner FROM runs WHERE {_ORPHANED}"  # noqa: S608
_ADOPT = f"UPDATE runs SET owner = ? WHERE owner = ? AND {_ORPHANED} RETURNING {_COLUMNS}"  # noqa: S608


class SQLiteEventLog:
    """Append-only; what is read includes all that this process emitted before."""

    def __init__(self, writer: Writer, reader: Reader, *, appender: EventAppender, liveness: Liveness) -> None:
        self._writer = writer
        self._reader = reader
        self._appender = appender
        self._liveness = liveness

    def emit(self, event: RunEvent) -> None:
        self._writer.put(event)

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
        values |= {"tool": only.tool, "since": only.since}

        def work(db: sqlite3.Connection) -> list[StoredEvent]:
            found = [stored_event(EventRow(*row)) for row in db.execute(sql, values)]
            return found[::-1] if newest else found

        return await self._reader.query(work)

    async def runs(self, *, tenant: str | None = None, limit: int = 50) -> list[RunSummary]:
        await self._writer.flush()
        sql = _RUNS + _CALLED + _where(tenant=tenant) + " ORDER BY nr DESC LIMIT :limit"
        values = {"tenant": tenant, "limit": max(0, limit)}
        return await self._reader.query(lambda db: [_summary(row) for row in db.execute(sql, values)])

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        await self._writer.flush()
        sql = _RUNS + _where(tenant=tenant, run_id=run_id) + " ORDER BY nr"
        row = await self._reader.query(lambda db: db.execute(sql, {"tenant": tenant, "run_id": run_id}).fetchone())
        return _summary(row) if row else None

    async def adopt_orphans(self) -> list[RunSummary]:
        def work(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            self._appender.save_heads(db)  # a run that ended in this very transaction is no orphan
            dead = [owner for (owner,) in db.execute(_RUNNERS).fetchall() if not self._liveness.alive(owner)]
            return [row for owner in dead for row in db.execute(_ADOPT, (self._liveness.owner_id, owner)).fetchall()]

        return [_summary(row) for row in await self._writer.submit(work)]

    async def open_calls(self, run_id: str, *, tenant: str) -> list[RunSummary]:
        await self._writer.flush()
        rows = await self._reader.query(lambda db: db.execute(_OF_RUN, (run_id, tenant)).fetchall())
        return find_open_calls(EventRow(*row) for row in rows)

    async def verify(self, run_id: str | None = None, *, tenant: str | None = None) -> list[str]:
        await self._writer.flush()
        key = self._appender.ledger.key
        if run_id is None:
            return await self._reader.query(lambda db: _in_snapshot(db, lambda: verify_log(db, key)))
        return await self._reader.query(lambda db: _in_snapshot(db, lambda: verify_run(db, key, run_id, tenant)))


def _in_snapshot(db: sqlite3.Connection, work: Callable[[], T]) -> T:
    """Several queries that see the same moment."""
    db.execute("BEGIN")
    try:
        return work()
    finally:
        db.execute("ROLLBACK")


def _where(*, tenant: str | None = None, run_id: str | None = None) -> str:
    return (" AND tenant = :tenant" if tenant is not None else "") + (
        " AND run_id = :run_id" if run_id is not None else ""
    )


def _filter(only: EventFilter) -> str:
    sql = f" AND {_TOOL} GLOB :tool" if only.tool is not None else ""
    sql += " AND at >= :since" if only.since is not None else ""
    return sql + (f" AND code IN ({', '.join(str(int(code)) for code in only.codes)})" if only.codes else "")


def _summary(row: tuple[Any, ...]) -> RunSummary:
    run_id, tenant, user, tool_name, status, started_at, updated_at, last_seq, call_id = row
    return RunSummary(
        run_id=run_id,
        tenant=tenant,
        user=user,
        tool_name=tool_name,
        status=status,
        started_at=started_at,
        updated_at=updated_at,
        events=last_seq,
        call_id=call_id,
    )
