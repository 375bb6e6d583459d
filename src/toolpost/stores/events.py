"""The event log in SQLite: events go to the writer, are read back beside it, and prove themselves unchanged."""

from __future__ import annotations

import sqlite3
from typing import Any

from toolpost.contracts.events import RunEvent, RunSummary, StoredEvent
from toolpost.stores.appender import EventAppender
from toolpost.stores.chain import find_breaks, stored_event
from toolpost.stores.liveness import Liveness
from toolpost.stores.reader import Reader
from toolpost.stores.writer import Writer

_EVENTS = "SELECT id, run_id, seq, code, at, call_id, tenant, payload, hash FROM events WHERE id > :after"
_COLUMNS = "run_id, tenant, user, tool_name, status, started_at, updated_at, last_seq, root_call"
_RUNS = f"SELECT {_COLUMNS} FROM runs WHERE TRUE"  # noqa: S608 - constants, here and below
_CALLED = " AND root_call <> ''"  # notices of sources and of the catalog belong to no call, so that nobody ran them
_RUNNERS = "SELECT DISTINCT owner FROM runs WHERE status = 'running'"
_ADOPT = f"UPDATE runs SET owner = ? WHERE owner = ? AND status = 'running' RETURNING {_COLUMNS}"  # noqa: S608


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
        self, *, tenant: str | None = None, run_id: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        await self._writer.flush()
        sql = _EVENTS + _where(tenant=tenant, run_id=run_id) + " ORDER BY id LIMIT :limit"
        values = {"after": after, "tenant": tenant, "run_id": run_id, "limit": max(0, limit)}
        return await self._reader.query(lambda db: [stored_event(row[0], row[1:]) for row in db.execute(sql, values)])

    async def runs(self, *, tenant: str | None = None, limit: int = 50) -> list[RunSummary]:
        await self._writer.flush()
        sql = _RUNS + _CALLED + _where(tenant=tenant) + " ORDER BY rowid DESC LIMIT :limit"
        values = {"tenant": tenant, "limit": max(0, limit)}
        return await self._reader.query(lambda db: [_summary(row) for row in db.execute(sql, values)])

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        await self._writer.flush()
        sql = _RUNS + _where(tenant=tenant, run_id=run_id)
        row = await self._reader.query(lambda db: db.execute(sql, {"tenant": tenant, "run_id": run_id}).fetchone())
        return _summary(row) if row else None

    async def adopt_orphans(self) -> list[RunSummary]:
        def work(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            self._appender.save_heads(db)  # a run that ended in this very transaction is no orphan
            dead = [owner for (owner,) in db.execute(_RUNNERS).fetchall() if not self._liveness.alive(owner)]
            return [row for owner in dead for row in db.execute(_ADOPT, (self._liveness.owner_id, owner)).fetchall()]

        return [_summary(row) for row in await self._writer.submit(work)]

    async def verify(self, run_id: str) -> list[str]:
        await self._writer.flush()
        return await self._reader.query(lambda db: _verify(db, run_id))


def _where(*, tenant: str | None = None, run_id: str | None = None) -> str:
    return (" AND tenant = :tenant" if tenant is not None else "") + (
        " AND run_id = :run_id" if run_id is not None else ""
    )


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


def _verify(db: sqlite3.Connection, run_id: str) -> list[str]:
    db.execute("BEGIN")  # One snapshot for the head and the events.
    try:
        head = db.execute("SELECT last_seq, last_hash FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        rows = db.execute(
            "SELECT run_id, seq, code, at, call_id, tenant, payload, hash FROM events WHERE run_id = ? ORDER BY seq",
            (run_id,),
        )
        if head is None:
            return [f"there is no run {run_id!r}"]
        return find_breaks(rows, last_seq=head[0], last_hash=head[1])
    finally:
        db.execute("ROLLBACK")
