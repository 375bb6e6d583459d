"""Limits of all processes on a data folder, in a separate database file that is never synced to disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from toolpost.contracts.errors import StoreError
from toolpost.contracts.limits import BreakerStatus, GateStatus, Rate, Troubles, limits_unavailable
from toolpost.stores.breaker_rules import FORGET_BREAKER_S, BreakerRecord
from toolpost.stores.durable_files import folder_lock, try_lock
from toolpost.stores.sqlite.database import FAULTS, in_transaction, open_unsynced, store_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from toolpost.contracts.clock import Clock
    from toolpost.stores.sqlite.liveness import Liveness

T = TypeVar("T")
LIMITS = "limits.db"
TROUBLE_POLL_S = 0.25  # how often a process looks for breakers and gates of others
SLOT_POLL_S = 0.02  # how often a process with waiting calls looks for slots that other processes have returned
_SCHEMA = """
CREATE TABLE IF NOT EXISTS buckets (name TEXT PRIMARY KEY, full_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS slots (
    name TEXT, owner TEXT, held INTEGER NOT NULL, since REAL, seen REAL NOT NULL, PRIMARY KEY (name, owner)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS breakers (
    name TEXT PRIMARY KEY, failures INTEGER NOT NULL, opened_at REAL, prober TEXT, probe_until REAL NOT NULL,
    failing_since REAL NOT NULL, changed_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gates (name TEXT PRIMARY KEY, until REAL NOT NULL, changed_at REAL NOT NULL) WITHOUT ROWID;
"""
# A bucket is the time at which it will be full.
_TAKE = """
INSERT INTO buckets VALUES (:name, :now + :interval)
ON CONFLICT DO UPDATE SET full_at = max(:now, full_at - :returned) + :interval
WHERE max(:now, full_at - :returned) + :interval <= :now + :burst + 1e-6
"""
_FULL_AT = "SELECT full_at FROM buckets WHERE name = ?"
# Another process is first if it waits and has fewer slots, or has the same number and waits for longer. Of processes
# with the same number, this one may take the slot first: it uses it immediately, and the other one only polls.
_ENTER = """
INSERT INTO slots SELECT :name, :owner, 1, :since, :now FROM (
    SELECT total(held) AS held, ifnull(min(since), :now) AS since FROM slots WHERE name = :name AND owner = :owner
) AS own
WHERE (SELECT total(held) FROM slots WHERE name = :name) < :limit AND NOT EXISTS (
    SELECT * FROM slots AS other
    WHERE name = :name AND owner <> :owner AND other.since IS NOT NULL AND seen > :now - :gone_s AND (
        other.held < own.held
        OR other.held = own.held AND other.since < own.since AND other.since < :now - :patience_s
    )
)
ON CONFLICT DO UPDATE SET held = held + 1, since = excluded.since, seen = excluded.seen
"""
_WAIT = """
INSERT INTO slots VALUES (:name, :owner, 0, :now, :now)
ON CONFLICT DO UPDATE SET since = ifnull(since, excluded.since), seen = excluded.seen
"""
_LEAVE = "UPDATE slots SET held = held - ? WHERE name = ? AND owner = ?"
_CLOSE_GATE = """
INSERT INTO gates VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET until = max(until, excluded.until), changed_at = excluded.changed_at
"""
_PATIENCE_S, _GONE_S = 0.1, 0.5
_RECLAIM_S = 1.0
_PRUNE_EVERY = 1000
_BUSY_S, _FIRST_PAUSE_S, _LAST_PAUSE_S, _RETRY_S = 5.0, 0.0005, 0.01, 1.0


class SQLiteLimits:
    """Rates, slots, breakers and gates in a file of the data folder.

    A statement takes microseconds, because nothing is synced; a thread for each would take longer. The first process
    empties the file, which could be damaged after a power failure, and contains times of a clock that starts at boot.
    """

    is_shared = True

    def __init__(self, folder: Path, liveness: Liveness, clock: Clock, before_commit: Callable[[], None]) -> None:
        self._file = _LimitFile(folder / LIMITS, guard=folder)
        self._liveness = liveness
        self._owner = liveness.owner_id
        self._now = clock.monotonic
        self._chance = clock.chance
        self._before_commit = before_commit
        self._taken = 0
        self._reclaimed_at = float("-inf")
        self._unreturned = Counter[str]()
        self._returning: asyncio.TimerHandle | None = None

    async def take(self, bucket: str, rate: Rate, *, count: int = 1, returned: float = 0.0) -> float:
        taken_s, burst_s = count * rate.interval_s, rate.burst * rate.interval_s

        def work(db: sqlite3.Connection) -> float:
            now = self._now()
            facts = {"name": bucket, "now": now, "interval": taken_s, "burst": burst_s}
            if db.execute(_TAKE, {**facts, "returned": returned * rate.interval_s}).rowcount:
                return 0.0
            row = db.execute(_FULL_AT, (bucket,)).fetchone()
            return 0.0 if row is None else float(max(now, row[0]) + taken_s - now - burst_s)

        wait_s = await self._write(work)
        self._taken += 1
        if self._taken % _PRUNE_EVERY == 0:
            await self._write(lambda db: db.execute("DELETE FROM buckets WHERE full_at < ?", (self._now(),)))
        return wait_s

    async def enter(self, slots: str, limit: int, *, waiting: int = 0) -> bool:
        facts = {"name": slots, "owner": self._owner, "limit": limit, "patience_s": _PATIENCE_S, "gone_s": _GONE_S}

        def work(db: sqlite3.Connection) -> bool:
            now = self._now()
            if db.execute(_ENTER, {**facts, "now": now, "since": now if waiting > 1 else None}).rowcount:
                return True
            if waiting:
                db.execute(_WAIT, {**facts, "now": now})
            if now - self._reclaimed_at > _RECLAIM_S:
                self._reclaimed_at = now
                self._reclaim(db)
            return False

        return await self._write(work)

    def leave(self, slots: str) -> None:
        self._unreturned[slots] += 1
        self._return_slots()

    async def slot_freed(self, *, timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, SLOT_POLL_S))

    async def read_breaker(self, breaker: str) -> BreakerStatus:
        if not self._file.exists():
            return BreakerStatus(breaker)
        return await self._run(lambda db: _read_breaker(db, breaker).status(breaker, now=self._now()))

    async def fail(self, breaker: str, *, threshold: int, streak: int) -> tuple[BreakerStatus, bool]:
        def work(db: sqlite3.Connection) -> tuple[BreakerStatus, bool]:
            now, before = self._now(), _read_breaker(db, breaker)
            after = before.failed(self._owner, threshold=threshold, streak=streak, settle_s=2 * TROUBLE_POLL_S, now=now)
            _write_breaker(db, breaker, after, now)
            db.execute("DELETE FROM breakers WHERE changed_at < ?", (now - FORGET_BREAKER_S,))
            return after.status(breaker, now=now), before.opened_at is None and after.opened_at is not None

        return await self._write(lambda db: in_transaction(db, lambda: work(db)))

    async def succeed(self, breaker: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            before = _read_breaker(db, breaker)
            if before.failures:
                _write_breaker(db, breaker, BreakerRecord(), self._now())
            return before.opened_at is not None

        return await self._write(lambda db: in_transaction(db, lambda: work(db)))

    async def claim_probe(self, breaker: str, *, cooldown_s: float) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            now = self._now()
            after = _read_breaker(db, breaker).probed(self._owner, cooldown_s=cooldown_s, now=now)
            if after is not None:
                _write_breaker(db, breaker, after, now)
            return after is not None

        return await self._write(lambda db: in_transaction(db, lambda: work(db)))

    async def abandon_probe(self, breaker: str) -> None:
        sql = "UPDATE breakers SET prober = NULL WHERE name = ? AND prober = ?"
        await self._write(lambda db: db.execute(sql, (breaker, self._owner)))

    async def close_gate(self, gate: str, *, wait_s: float) -> None:

        def work(db: sqlite3.Connection) -> None:
            now = self._now()
            db.execute("DELETE FROM gates WHERE until < ?", (now,))
            db.execute(_CLOSE_GATE, (gate, now + wait_s, now))

        await self._write(lambda db: in_transaction(db, lambda: work(db)))

    async def read_troubles(self, *, within_s: float | None = None) -> Troubles:
        if not self._file.exists():
            return Troubles()

        def work(db: sqlite3.Connection) -> Troubles:
            now = self._now()
            since = 0.0 if within_s is None else now - within_s
            breakers = db.execute("SELECT * FROM breakers WHERE changed_at >= ?", (since,)).fetchall()
            gates = db.execute("SELECT name, until FROM gates WHERE changed_at >= ? AND until > ?", (since, now))
            return Troubles(
                tuple(BreakerRecord(*record).status(name, now=now) for name, *record, _changed_at in breakers),
                tuple(GateStatus(name, until - now) for name, until in gates),
            )

        return await self._run(work)

    async def trouble_reported(self, *, timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, TROUBLE_POLL_S))

    def close(self) -> None:
        """Return the slots of this process, and close the file."""
        if self._returning is not None:
            self._returning.cancel()
        db = self._file.db
        if db is not None:
            with contextlib.suppress(sqlite3.Error):  # the liveness of this process ends, which has the same effect
                db.execute("DELETE FROM slots WHERE owner = ?", (self._owner,))
        self._file.close()

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def checked(db: sqlite3.Connection) -> T:
            self._before_commit()
            return work(db)

        return await self._run(checked)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run short work on the connection; while another process writes, wait without blocking the event loop."""
        began, pause_s = self._now(), _FIRST_PAUSE_S
        while True:
            try:
                return work(self._file.open())
            except FAULTS as error:
                if not _is_busy(error) or self._now() - began > _BUSY_S:
                    raise limits_unavailable(store_error(error, self._file.path)) from error
            except StoreError as error:
                raise limits_unavailable(error) from error
            await asyncio.sleep(pause_s * (0.5 + self._chance()))
            pause_s = min(pause_s * 2, _LAST_PAUSE_S)

    def _return_slots(self) -> None:
        """Return slots; those that cannot be returned now are returned later."""
        if self._file.is_closed:
            return
        try:
            for slots, count in list(self._unreturned.items()):
                self._file.open().execute(_LEAVE, (count, slots, self._owner))
                del self._unreturned[slots]
        except (*FAULTS, StoreError) as error:
            if self._returning is None or self._returning.when() <= asyncio.get_running_loop().time():
                retry_s = _FIRST_PAUSE_S if _is_busy(error) else _RETRY_S
                self._returning = asyncio.get_running_loop().call_later(retry_s, self._return_slots)

    def _reclaim(self, db: sqlite3.Connection) -> None:
        """Free the slots of terminated processes."""
        owners = [owner for (owner,) in db.execute("SELECT DISTINCT owner FROM slots")]
        for owner in owners:
            if owner != self._owner and not self._liveness.alive(owner):
                db.execute("DELETE FROM slots WHERE owner = ?", (owner,))


class _LimitFile:
    """The database file, opened at its first use; a lock shows that a process uses it."""

    def __init__(self, path: Path, *, guard: Path) -> None:
        self.path = path
        self.db: sqlite3.Connection | None = None
        self.is_closed = False
        self._guard = guard
        self._descriptor = -1

    def exists(self) -> bool:
        """Return whether this process, or another one, has used the file."""
        return self.db is not None or self.path.exists()

    def open(self) -> sqlite3.Connection:
        """Return the connection."""
        if self.db is not None:
            return self.db
        if self.is_closed:
            raise StoreError(f"the store at {str(self.path)!r} is closed; open it again to continue")
        try:
            with folder_lock(self._guard):
                self._lock()
                self.db = open_unsynced(self.path, _SCHEMA)
        except OSError as error:
            raise store_error(error, self.path) from error
        return self.db

    def _lock(self) -> None:
        """Lock the file's lock file; the first process deletes the file."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        if try_lock(self._descriptor, shared=False):
            for name in (self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm"):
                with contextlib.suppress(OSError):  # Windows keeps the file of a process that could not lock it
                    self.path.with_name(name).unlink(missing_ok=True)
        try_lock(self._descriptor, shared=True)

    def close(self) -> None:
        """Close the connection and release the lock."""
        self.is_closed = True
        if self.db is not None:
            self.db.close()
            self.db = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _read_breaker(db: sqlite3.Connection, name: str) -> BreakerRecord:
    sql = "SELECT failures, opened_at, prober, probe_until, failing_since FROM breakers WHERE name = ?"
    row = db.execute(sql, (name,)).fetchone()
    return BreakerRecord() if row is None else BreakerRecord(*row)


def _write_breaker(db: sqlite3.Connection, name: str, record: BreakerRecord, now: float) -> None:
    db.execute("INSERT OR REPLACE INTO breakers VALUES (?, ?, ?, ?, ?, ?, ?)", (name, *record, now))


def _is_busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
