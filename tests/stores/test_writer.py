"""The one thread that writes: order, isolation, back-pressure, and disks that fill up."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from tests.stores.conftest import open_store
from toolpost.contracts.clock import SYSTEM_CLOCK
from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import RunEvent
from toolpost.contracts.storage import EventLog
from toolpost.stores.changes import Changes, Topic
from toolpost.stores.encryption import NoCipher, RowCipher
from toolpost.stores.sqlite.context import SQLiteContext
from toolpost.stores.sqlite.database import Reader, open_writable
from toolpost.stores.sqlite.event_appender import EventAppender, open_ledger
from toolpost.stores.sqlite.event_log import SQLiteEventLog
from toolpost.stores.sqlite.liveness import Liveness
from toolpost.stores.sqlite.transactions import TransactionRunner
from toolpost.stores.writer import MANY_WAITERS, Item, ItemResult, WriteFunction, Writer, deliver
from toolpost.testing.stores.samples import ANN, artifact, call_ref, event, intent


async def no_states(topics: Collection[Topic]) -> dict[Topic, object]:
    return dict.fromkeys(topics)


ADD = "INSERT INTO cancels (target_id, tenant, requested_by, at) VALUES (?, 'acme', 'acme:ann', 0)"


class Bench:
    """A writer with its log, and a hand on its connection."""

    def __init__(self, folder: Path, *, limit: int = 50_000) -> None:
        path = folder / "toolpost.db"
        self.db = open_writable(path, busy_s=0.01)
        liveness = Liveness(folder / "owners")
        appender = EventAppender(liveness.owner_id, open_ledger(self.db, RowCipher(NoCipher())))
        self.writer = Writer[sqlite3.Connection](TransactionRunner(self.db, appender, path=path), limit=limit)
        self.reader = Reader(path, busy_s=1.0)
        rows = RowCipher(NoCipher())
        changes = Changes(no_states)
        names = (appender.ledger.key, liveness.owner_id)
        shared = SQLiteContext(self.writer, self.reader, appender, rows, liveness, changes, SYSTEM_CLOCK, *names)
        self.log = SQLiteEventLog(shared)

    def fill_disk(self) -> None:
        self.db.execute("PRAGMA max_page_count = 1").fetchall()  # SQLite makes it what is in use now.

    def make_room(self) -> None:
        self.db.execute("PRAGMA max_page_count = 1000000").fetchall()


@asynccontextmanager
async def a_bench(folder: Path, *, limit: int = 50_000) -> AsyncIterator[Bench]:
    bench = Bench(folder, limit=limit)
    try:
        yield bench
    finally:
        with suppress(StoreError):
            await bench.writer.close()
        await bench.reader.close()


def large() -> RunEvent:
    return event(facts={"text": "x" * 5000})


async def recovered(log: EventLog) -> None:
    """Wait for the writer's next success; each flush waits for its next attempt."""
    async with asyncio.timeout(30):
        while True:
            with suppress(StoreError):
                return await log.flush()


async def test_a_function_that_fails_harms_no_other(tmp_path: Path) -> None:
    def fail(db: sqlite3.Connection) -> None:
        db.execute(ADD, ("half",))
        raise LookupError("on purpose")

    async with a_bench(tmp_path) as bench:
        bench.log.emit(event())
        results = await asyncio.gather(
            bench.writer.submit(lambda db: db.execute(ADD, ("one",)).rowcount),
            bench.writer.submit(fail),
            bench.writer.submit(lambda db: db.execute("no such statement").rowcount),
            bench.writer.submit(lambda db: db.execute(ADD, ("two",)).rowcount),
            return_exceptions=True,
        )
        kept = await bench.reader.query(lambda db: db.execute("SELECT target_id FROM cancels").fetchall())

        assert [type(result) for result in results] == [int, LookupError, StoreError, int]
        assert sorted(kept) == [("one",), ("two",)]
        assert len(await bench.log.read()) == 1


async def test_everything_happens_in_the_order_in_which_it_was_put(tmp_path: Path) -> None:
    async with a_bench(tmp_path) as bench:
        counts: list[asyncio.Task[int]] = []
        for _ in range(20):
            bench.log.emit(event())
            count = bench.writer.submit(lambda db: int(db.execute("SELECT count(*) FROM segments").fetchone()[0]))
            counts.append(asyncio.create_task(count))
            await asyncio.sleep(0)

        assert await asyncio.gather(*counts) == list(range(1, 21))


class Gathering(TransactionRunner):
    """Transactions that gather for a long time, and how many functions each one had."""

    gather_s = 60.0

    def __init__(self, db: sqlite3.Connection, appender: EventAppender, *, path: Path) -> None:
        super().__init__(db, appender, path=path)
        self.sizes: list[int] = []

    def commit(self, batch: Sequence[Item]) -> list[ItemResult]:
        self.sizes.append(sum(isinstance(item, WriteFunction) for item in batch))
        return super().commit(batch)


async def test_while_many_callers_wait_a_transaction_gathers_their_functions(tmp_path: Path) -> None:
    path = tmp_path / "toolpost.db"
    db = open_writable(path, busy_s=0.01)
    appender = EventAppender(Liveness(tmp_path / "owners").owner_id, open_ledger(db, RowCipher(NoCipher())))
    transactions = Gathering(db, appender, path=path)
    writer = Writer[sqlite3.Connection](transactions, limit=50_000)
    queued = threading.Event()

    async def submit(count: int) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(writer.submit(lambda _: None)) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks

    first = asyncio.create_task(writer.submit(lambda _: queued.wait(30)))
    await asyncio.sleep(0)
    many = await submit(MANY_WAITERS)
    queued.set()
    await asyncio.gather(first, *many)
    early = await submit(3)
    await asyncio.wait(early, timeout=0.02)  # a writer that does not gather commits them now
    late = await submit(2)
    await writer.close()  # a writer that stops gathers no longer

    await asyncio.gather(*early, *late)
    assert transactions.sizes[-1] == 5


async def test_one_who_no_longer_waits_harms_no_other(tmp_path: Path) -> None:
    async with a_bench(tmp_path) as bench:
        impatient = asyncio.create_task(bench.writer.submit(lambda db: db.execute(ADD, ("one",)).rowcount))
        await asyncio.sleep(0)
        impatient.cancel()

        assert await bench.writer.submit(lambda db: db.execute(ADD, ("two",)).rowcount) == 1
        assert impatient.cancelled()


def test_a_loop_that_is_closed_is_not_answered() -> None:
    loop = asyncio.new_event_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.close()

    deliver([ItemResult(future)])

    assert not future.done()


def test_loops_in_other_threads_are_served(tmp_path: Path) -> None:
    async def use() -> int:
        async with open_store(tmp_path) as store:

            def elsewhere() -> None:
                asyncio.run(store.journal.begin(intent("call_2")))
                asyncio.run(store.events.flush())

            store.events.emit(event())
            await asyncio.gather(asyncio.to_thread(elsewhere), store.journal.begin(intent("call_1")))
            found = [await store.journal.find(name, "") for name in ("call_1", "call_2")]
            return sum(entry is not None for entry in found)

    assert asyncio.run(use()) == 2


async def test_callers_that_drain_keep_what_waits_within_the_limit(tmp_path: Path) -> None:
    peak, go_on = 0, threading.Event()
    async with a_bench(tmp_path, limit=500) as bench:
        held = asyncio.create_task(bench.writer.submit(lambda _: go_on.wait(60)))
        await asyncio.sleep(0)  # now the writer has something to do until so much waits that callers must
        for _ in range(5_000):
            if bench.log.congested:
                go_on.set()
                await bench.log.drain()
                assert bench.writer.waiting <= 251
            bench.log.emit(event())
            peak = max(peak, bench.writer.waiting)

        assert await held
        assert 400 < peak <= 502
        stored = await bench.log.read(limit=100_000)
        assert [each.seq for each in stored] == list(range(1, 5_001))
        assert await bench.log.verify("run_1") == []


async def test_a_full_disk_loses_nothing_and_heals_automatically(tmp_path: Path) -> None:
    async with a_bench(tmp_path) as bench:
        bench.fill_disk()
        for _ in range(10):
            bench.log.emit(large())
        with pytest.raises(StoreError, match=r"toolpost.db': database or disk is full; .*free some space"):
            await bench.log.flush()
        with pytest.raises(StoreError, match="disk is full"):
            await bench.writer.submit(lambda db: db.execute(ADD, ("one",)).rowcount)
        bench.log.emit(large())

        bench.make_room()
        await recovered(bench.log)

        assert await bench.writer.submit(lambda db: db.execute(ADD, ("one",)).rowcount) == 1
        assert [each.seq for each in await bench.log.read()] == list(range(1, 12))
        assert await bench.log.verify("run_1") == []


async def test_while_the_disk_is_full_callers_of_drain_get_an_error(tmp_path: Path) -> None:
    async with a_bench(tmp_path, limit=20) as bench:
        bench.fill_disk()
        for _ in range(22):  # one more than enough: the writer may hold one that it has not counted yet
            bench.log.emit(large())
        was_congested = bench.log.congested
        for _ in range(2):
            with pytest.raises(StoreError, match="disk is full"):
                await bench.log.drain()

        bench.make_room()
        await recovered(bench.log)

        assert (was_congested, bench.log.congested) == (True, False)
        await bench.log.drain()
        assert len(await bench.log.read()) == 22


async def test_a_function_too_large_for_the_disk_is_reported_and_events_continue(tmp_path: Path) -> None:
    async with a_bench(tmp_path) as bench:
        await bench.writer.submit(lambda db: db.execute(ADD, ("room for more",)).close())
        bench.fill_disk()
        bench.log.emit(event())
        blob = "x" * 1_000_000

        with pytest.raises(StoreError, match="disk is full"):
            await bench.writer.submit(lambda db: db.execute(ADD, (blob,)).close())

        await recovered(bench.log)
        assert len(await bench.log.read()) == 1


async def test_closing_on_a_full_disk_says_how_much_is_lost(tmp_path: Path) -> None:
    async with a_bench(tmp_path) as bench:
        bench.fill_disk()
        for _ in range(7):
            bench.log.emit(large())

        with pytest.raises(StoreError, match=r"7 events were not written: .*disk is full"):
            await bench.writer.close()


async def test_one_event_that_is_lost_is_not_several_and_what_ran_is_not_undone(tmp_path: Path) -> None:
    async with a_bench(tmp_path) as bench:
        bench.fill_disk()
        bench.log.emit(large())

        with pytest.raises(StoreError, match=r"1 event was not written: .*; the calls are not undone"):
            await bench.writer.close()


async def test_events_wait_while_another_program_holds_the_database(tmp_path: Path) -> None:
    async with a_bench(tmp_path) as bench:
        with closing(sqlite3.connect(tmp_path / "toolpost.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            bench.log.emit(event())
            with pytest.raises(StoreError, match="locked by another program"):
                await bench.log.flush()
            other.execute("ROLLBACK")

        await recovered(bench.log)
        assert len(await bench.log.read()) == 1


async def test_a_closed_store_refuses_and_closes_twice(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.events.emit(event())
    await store.close()
    await store.close()

    with pytest.raises(StoreError, match="is closed"):
        store.events.emit(event())
    with pytest.raises(StoreError, match="is closed"):
        await store.journal.begin(intent())
    with pytest.raises(StoreError, match="is closed"):
        await store.journal.find("call_1", "")
    async with open_store(tmp_path) as again:
        assert len(await again.events.read()) == 1


@pytest.mark.programs
@pytest.mark.skipif(not Path("/bin/mount").exists(), reason="NOT TESTED on a real full disk: there is no mount here")
async def test_a_disk_that_is_really_full_loses_nothing_and_heals_automatically(small_disk: Path) -> None:
    async with open_store(small_disk / "data") as store:
        await store.journal.begin(intent())
        filler = small_disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(os.urandom(4096))
        for number in range(100):
            store.events.emit(event(call=call_ref(), facts={"n": number, "text": "x" * 5000}))
        with pytest.raises(StoreError, match="full"):
            await store.events.flush()
        with pytest.raises(StoreError, match=r"(full|No space)"):
            await store.journal.finish("call_1", "", "x" * 100_000)
        with pytest.raises(StoreError, match="No space left"):
            await store.artifacts.put(b"x" * 100_000, artifact())

        filler.unlink()
        await recovered(store.events)

        stored = await store.events.read()
        assert [each.payload["n"] for each in stored] == list(range(100))
        assert await store.events.verify("run_1") == []
        await store.journal.finish("call_1", "", "done")
        ref = await store.artifacts.put(b"x" * 10_000, artifact())
        assert len(await store.artifacts.read(ref.id, tenant=ANN.tenant)) == 10_000


async def test_a_batch_that_the_database_refuses_is_kept_and_tried_again(tmp_path: Path) -> None:
    async with a_bench(tmp_path) as bench:
        refuse = "CREATE TRIGGER refuse BEFORE INSERT ON segments BEGIN SELECT RAISE(ABORT, 'not now'); END"
        await bench.writer.submit(lambda db: db.execute(refuse).close())
        bench.log.emit(event())
        with pytest.raises(StoreError, match="not now"):
            await bench.log.flush()

        with closing(sqlite3.connect(tmp_path / "toolpost.db")) as other:
            other.execute("DROP TRIGGER refuse")
        await recovered(bench.log)

        assert [each.seq for each in await bench.log.read()] == [1]
        assert await bench.log.verify("run_1") == []
