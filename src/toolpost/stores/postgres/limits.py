"""Limits of all processes on a PostgreSQL database, in unlogged tables, on a dedicated connection."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from toolpost.contracts.errors import StoreError
from toolpost.contracts.limits import BreakerStatus, GateStatus, Rate, Troubles, limits_unavailable
from toolpost.stores.breaker_rules import FORGET_BREAKER_S, BreakerRecord
from toolpost.stores.postgres.database import FAULTS, Connection, Database, PostgresReader, is_lost, roll_back
from toolpost.stores.threads import Block, Take

if TYPE_CHECKING:
    from toolpost.contracts.clock import Clock
    from toolpost.stores.postgres.liveness import Leases
    from toolpost.stores.threads import StoreThread, StoreThreads, Work

T = TypeVar("T")
_SLOT_POLL_S, _TROUBLE_POLL_S = 0.05, 1.0
_RECLAIM_S = 1.0
_PRUNE_EVERY = 1000

# A bucket is the time at which it will be full.
_TAKE = """
INSERT INTO buckets (name, full_at) VALUES (%(name)s, toolpost.now() + %(interval)s)
ON CONFLICT (name) DO UPDATE
SET full_at = greatest(toolpost.now(), buckets.full_at - %(returned)s) + %(interval)s
WHERE greatest(toolpost.now(), buckets.full_at - %(returned)s) + %(interval)s <= toolpost.now() + %(burst)s + 1e-6
"""
_WAIT_S = "SELECT greatest(toolpost.now(), full_at) + %s - toolpost.now() - %s FROM buckets WHERE name = %s"
_ENTER = "SELECT toolpost.enter_slot(%s, %s, %s, %s)"
_LEAVE = "UPDATE slots SET held = greatest(0, held - 1) WHERE name = %s AND owner = %s"
_HOLD = """
INSERT INTO slots (name, owner, held, since, seen) VALUES (%s, %s, %s, NULL, toolpost.now())
ON CONFLICT (name, owner) DO UPDATE SET held = excluded.held
"""
_RECLAIM = """
DELETE FROM slots WHERE owner <> '' AND NOT EXISTS (
    SELECT FROM owners WHERE id = slots.owner AND dead_at IS NULL AND until >= toolpost.now()
)
"""
_READ_BREAKERS = "SELECT toolpost.now(), failures, opened_at, prober, probe_until, failing_since, name FROM breakers"
_READ_BREAKER = f"{_READ_BREAKERS} WHERE name = %s"
_LOCK_BREAKER = f"{_READ_BREAKER} FOR UPDATE"
_FORGET_BREAKERS = "DELETE FROM breakers WHERE changed_at BETWEEN 1 AND toolpost.now() - %s"
_ADD_BREAKER = "INSERT INTO breakers VALUES (%s, 0, NULL, NULL, 0, 0, 0) ON CONFLICT (name) DO NOTHING"
_SAVE_BREAKER = """
UPDATE breakers
SET failures = %s, opened_at = %s, prober = %s, probe_until = %s, failing_since = %s, changed_at = %s WHERE name = %s
"""
_ABANDON = "UPDATE breakers SET prober = NULL WHERE name = %s AND prober = %s"
_CLOSE_GATE = """
INSERT INTO gates (name, until, changed_at) VALUES (%s, toolpost.now() + %s, toolpost.now())
ON CONFLICT (name) DO UPDATE
SET until = greatest(gates.until, excluded.until), changed_at = excluded.changed_at
"""
_CHANGED_BREAKERS = f"{_READ_BREAKERS} WHERE changed_at >= toolpost.now() - %s"
_GATES = """
SELECT name, until - toolpost.now() FROM gates
WHERE changed_at >= toolpost.now() - %s AND until > toolpost.now()
"""
_EVER_S = 1e12


class PostgresLimits:
    """Rates, slots, breakers and gates in unlogged tables, which are empty after a crash of the server.

    After a crash, every process writes the slots that it holds again when it reconnects. Until all processes have had
    the time for that, `enter_slot` takes no new ones.
    """

    is_shared = True

    def __init__(
        self, database: Database, reader: PostgresReader, leases: Leases, clock: Clock, threads: StoreThreads
    ) -> None:
        self._reader = reader
        self._leases = leases
        self._now = clock.monotonic
        # The owner of each slot of this process, which is another after a lost lease; only the worker's thread uses it.
        self._entered: defaultdict[str, deque[str]] = defaultdict(deque)
        self._worker = _Worker(database, threads, greet=self._restore_slots)
        self._taken = 0
        self._reclaimed_at = float("-inf")

    async def take(self, bucket: str, rate: Rate, *, count: int = 1, returned: float = 0.0) -> float:
        taken_s, burst_s = count * rate.interval_s, rate.burst * rate.interval_s
        facts = {"name": bucket, "interval": taken_s, "burst": burst_s, "returned": returned * rate.interval_s}

        def work(db: Connection) -> float:
            if db.execute(_TAKE, facts).rowcount:
                return 0.0
            row = db.execute(_WAIT_S, (taken_s, burst_s, bucket)).fetchone()
            return 0.0 if row is None else max(1e-6, float(row[0]))

        wait_s = await self._worker.run(work)
        self._taken += 1
        if self._taken % _PRUNE_EVERY == 0:
            await self._worker.run(lambda db: db.execute("DELETE FROM buckets WHERE full_at < toolpost.now()"))
        return wait_s

    async def enter(self, slots: str, limit: int, *, waiting: int = 0) -> bool:
        owner = self._leases.owner_id

        def work(db: Connection) -> str:
            ((outcome,),) = db.execute(_ENTER, (slots, owner, limit, waiting)).fetchall()
            if outcome == "entered":
                self._entered[slots].append(owner)
            if outcome == "full" and self._now() - self._reclaimed_at > _RECLAIM_S:
                self._reclaimed_at = self._now()
                db.execute(_RECLAIM)
            return str(outcome)

        def undo(outcome: str) -> None:
            if outcome == "entered":
                self.leave(slots)

        outcome = await self._worker.run(work, undo=undo)
        if outcome == "unknown" and not waiting:
            raise limits_unavailable(StoreError("the database has crashed, and processes report their slots again"))
        return outcome == "entered"

    def leave(self, slots: str) -> None:
        self._worker.put(partial(self._leave, slots))

    async def slot_freed(self, *, timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, _SLOT_POLL_S))

    async def read_breaker(self, breaker: str) -> BreakerStatus:
        def work(db: Connection) -> BreakerStatus:
            row = db.execute(_READ_BREAKER, (breaker,)).fetchone()
            return BreakerStatus(breaker) if row is None else BreakerRecord(*row[1:-1]).status(breaker, now=row[0])

        return await self._worker.run(work)

    async def fail(self, breaker: str, *, threshold: int, streak: int) -> tuple[BreakerStatus, bool]:
        owner = self._leases.owner_id

        def change(before: BreakerRecord, now: float) -> BreakerRecord:
            return before.failed(owner, threshold=threshold, streak=streak, settle_s=2 * _TROUBLE_POLL_S, now=now)

        before, after, now = await self._worker.run(lambda db: _change_breaker(db, breaker, change))
        return after.status(breaker, now=now), before.opened_at is None and after.opened_at is not None

    async def succeed(self, breaker: str) -> bool:
        before, _, _ = await self._worker.run(lambda db: _change_breaker(db, breaker, lambda _b, _n: BreakerRecord()))
        return before.opened_at is not None

    async def claim_probe(self, breaker: str, *, cooldown_s: float) -> bool:
        owner = self._leases.owner_id

        def change(before: BreakerRecord, now: float) -> BreakerRecord:
            return before.probed(owner, cooldown_s=cooldown_s, now=now) or before

        before, after, _ = await self._worker.run(lambda db: _change_breaker(db, breaker, change))
        return after is not before

    async def abandon_probe(self, breaker: str) -> None:
        await self._worker.run(lambda db: db.execute(_ABANDON, (breaker, self._leases.owner_id)))

    async def close_gate(self, gate: str, *, wait_s: float) -> None:
        def work(db: Connection) -> None:
            db.execute("DELETE FROM gates WHERE until < toolpost.now()")
            db.execute(_CLOSE_GATE, (gate, wait_s))

        await self._worker.run(work)

    async def read_troubles(self, *, within_s: float | None = None) -> Troubles:
        within_s = _EVER_S if within_s is None else within_s

        def work(db: Connection) -> Troubles:
            breakers = db.execute(_CHANGED_BREAKERS, (within_s,)).fetchall()
            gates = db.execute(_GATES, (within_s,)).fetchall()
            return Troubles(
                tuple(BreakerRecord(*record).status(name, now=now) for now, *record, name in breakers),
                tuple(GateStatus(name, wait_s) for name, wait_s in gates),
            )

        if self._worker.is_started:  # a lost connection is noticed here, and the slots of this process are restored
            return await self._worker.run(work)
        try:
            return await self._reader.query(work)
        except StoreError as error:
            raise limits_unavailable(error) from error

    async def trouble_reported(self, *, timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, _TROUBLE_POLL_S))

    async def close(self) -> None:
        """Return the slots of this process, and close the connection."""
        owner = self._leases.owner_id
        if self._worker.is_started:
            with suppress(StoreError):  # the lease of this process ends, which has the same effect
                await self._worker.run(lambda db: db.execute("DELETE FROM slots WHERE owner = %s", (owner,)))
        await self._worker.close()

    def _leave(self, slots: str, connect: Callable[[], Connection]) -> None:
        owner = self._entered[slots].popleft()  # first: a new connection writes the slots that remain
        connect().execute(_LEAVE, (slots, owner))

    def _restore_slots(self, db: Connection) -> None:
        """Write the slots that this process holds, after the connection or the table was lost."""
        with db.transaction():
            db.execute("UPDATE slots SET held = 0 WHERE owner = %s", (self._leases.owner_id,))
            for slots, owners in list(self._entered.items()):
                for owner, held in Counter(owners).items():
                    db.execute(_HOLD, (slots, owner, held))


class _Request(NamedTuple):
    """Work, the future of its result, and what undoes the result if its caller was cancelled."""

    work: Callable[[Callable[[], Connection]], Any]
    future: asyncio.Future[Any] | None = None
    undo: Callable[[Any], None] | None = None


class _Worker:
    """Runs short work, one after the other, on a connection that is opened when it is needed."""

    def __init__(self, database: Database, threads: StoreThreads, *, greet: Callable[[Connection], None]) -> None:
        self._database = database
        self._threads = threads
        self._greet = greet
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._db: Connection | None = None
        self._thread: StoreThread | None = None
        self._is_closed = False

    @property
    def is_started(self) -> bool:
        """Whether the connection has been needed."""
        return self._thread is not None

    async def run(self, work: Callable[[Connection], T], *, undo: Callable[[T], None] | None = None) -> T:
        """Run work and return its result; `undo` gets the result if the caller was cancelled."""
        if self._is_closed:
            closed = f"the store at {self._database.place!r} is closed; open it again to continue"
            raise limits_unavailable(StoreError(closed))
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def connect_first(connect: Callable[[], Connection]) -> T:
            return work(connect())

        self._put(_Request(connect_first, future, undo))
        return await future

    def put(self, work: Callable[[Callable[[], Connection]], Any]) -> None:
        """Run work later; it gets a function that connects. If the work fails, the connection is replaced."""
        if not self._is_closed:
            self._put(_Request(work))

    async def close(self) -> None:
        """Finish the queue and close the connection."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread is not None:
            self._queue.put(None)
            await self._thread.finished()

    def _put(self, request: _Request) -> None:
        self._queue.put(request)
        if self._thread is None:
            self._thread = self._threads.start(self._run(), name="toolpost-limits", stop=lambda: self._queue.put(None))

    def _run(self) -> Work:
        try:
            while (request := (yield Take(self._queue))) is not None:
                yield Block(partial(self._serve, request))
        finally:
            if self._db is not None:
                self._db.close()

    def _serve(self, request: _Request) -> None:
        error: BaseException | None = None
        result: Any = None
        try:
            result = request.work(self._connect)
        except FAULTS as fault:
            error = limits_unavailable(self._database.explain(fault))
        except StoreError as fault:
            error = limits_unavailable(fault)
        except BaseException as fault:  # noqa: BLE001 - raised where the work was requested
            error = fault
        if error is not None and self._db is not None:
            roll_back(self._db)
            if request.future is None:
                self._db.close()
        if request.future is not None:
            with suppress(RuntimeError):  # the loop is closed
                request.future.get_loop().call_soon_threadsafe(_deliver, request, result, error)

    def _connect(self) -> Connection:
        if self._db is None or is_lost(self._db):
            db = self._database.connect("limits")
            try:
                self._greet(db)
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db


def _deliver(request: _Request, result: Any, error: BaseException | None) -> None:
    future = request.future
    if future is None or future.done():
        if error is None and request.undo is not None:
            request.undo(result)
    elif error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _change_breaker(
    db: Connection, name: str, change: Callable[[BreakerRecord, float], BreakerRecord]
) -> tuple[BreakerRecord, BreakerRecord, float]:
    """Change a breaker in a transaction; return the record before and after it, and the time."""
    with db.transaction():
        rows = db.execute(_LOCK_BREAKER, (name,)).fetchall()
        if not rows:
            db.execute(_ADD_BREAKER, (name,))
            db.execute(_FORGET_BREAKERS, (FORGET_BREAKER_S,))
            rows = db.execute(_LOCK_BREAKER, (name,)).fetchall()
        ((now, *record, _),) = rows
        before = BreakerRecord(*record)
        after = change(before, now)
        if after is not before:
            db.execute(_SAVE_BREAKER, (*after, now, name))
    return before, after, now
