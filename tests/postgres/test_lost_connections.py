"""Connections that are lost: nothing is lost with them, and nothing is stored twice."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.postgres.cut_link import Moment, linked
from tests.postgres.server import PASSWORD, PostgreSQL
from tests.postgres.stores import asking, end_connections, open_store
from toolpost.auth.keys import FileCipher
from toolpost.contracts.errors import StoreError
from toolpost.stores.encryption import NoCipher
from toolpost.stores.postgres.database import Connection, Database, is_lost, roll_back
from toolpost.stores.postgres.store import open_database
from toolpost.testing.stores.samples import call_ref, event, intent

pytestmark = pytest.mark.programs


def through(server: PostgreSQL, url: str, port: int) -> str:
    name = url.partition("?")[0].rpartition("/")[2]
    return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{port}/{name}"


@pytest.mark.req("SCALE-28")
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_commit_whose_answer_is_lost_is_looked_up(
    postgres: PostgreSQL, postgres_url: str, tmp_path: Path, moment: Moment
) -> None:
    with linked(("127.0.0.1", postgres.port)) as link:
        async with open_store(through(postgres, postgres_url, link.port), tmp_path) as store:
            await store.events.flush()
            link.cut_at = moment
            for number in range(3):
                store.events.emit(event(facts={"number": number}))
            await asyncio.gather(store.journal.begin(intent("call_1")), store.events.flush())
            store.events.emit(event(facts={"number": 3}))
            await store.journal.finish("call_1", "", "done")

            assert link.cuts == 1
            events = await store.events.read()
            assert [one.payload["number"] for one in events] == [0, 1, 2, 3]
            entry = await store.journal.find("call_1", "")
            assert entry is not None
            assert (entry.result, await store.events.verify()) == ("done", [])


@pytest.mark.parametrize("state", ["in a pipeline", "in a transaction"])
def test_a_connection_that_cannot_end_its_transaction_is_lost(postgres_url: str, state: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("BEGIN")
        if state == "in a pipeline":  # as psycopg leaves it if the server ends it at the end of a pipeline
            db.pgconn.enter_pipeline_mode()
        roll_back(db)
        assert is_lost(db) == (state == "in a pipeline")


def test_a_server_that_stops_answering_is_noticed(postgres_url: str) -> None:
    database = Database(postgres_url)
    with database.connect("check") as db:
        db.silence_s = 0.2
        with pytest.raises(psycopg.OperationalError, match=r"did not answer within 0\.2 s") as silent, db.pipeline():
            db.execute("SELECT pg_sleep(600)")

        assert is_lost(db)
    assert "the connection was lost; check the server" in str(database.explain(silent.value))


async def test_a_store_closes_although_its_server_does_not_answer(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.stores.postgres.database._LAST_SILENCE_S", 0.2)
    monkeypatch.setattr("toolpost.stores.postgres.transactions.RECONNECT_S", 0.0)
    opened = open_database(postgres_url, cipher=NoCipher())
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def never_end(db: Connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        db.execute("SELECT pg_sleep(600)")

    reading = asyncio.ensure_future(opened.shared.reader.query(never_end))
    await begun.wait()
    writing = asyncio.ensure_future(opened.shared.writer.submit(never_end))
    await asyncio.sleep(0)  # it is in the queue
    await opened.close()

    with pytest.raises(StoreError, match="did not answer"):
        await reading
    with pytest.raises(StoreError, match="did not answer"):
        await writing


async def test_a_server_that_ends_all_connections_costs_nothing_and_doubles_nothing(
    postgres_url: str, tmp_path: Path
) -> None:
    async with open_store(postgres_url, tmp_path) as one, open_store(postgres_url, tmp_path) as two:

        async def write(name: str) -> None:
            store = one if name == "one" else two
            for number in range(60):
                store.events.emit(event(call=call_ref(f"run_{name}"), facts={"number": number}))
                store.events.emit(event(call=call_ref("run_shared"), facts={"by": name}))
                await store.journal.begin(intent(f"call_{name}_{number}"))
                await store.journal.finish(f"call_{name}_{number}", "", number)

        writing = asyncio.ensure_future(asyncio.gather(write("one"), write("two")))
        ended = 0
        while not writing.done():
            ended += await asyncio.to_thread(end_connections, postgres_url)
            await asyncio.sleep(0.02)
        await writing
        assert ended

        for name in ("one", "two"):
            events = await one.events.read(run_id=f"run_{name}")
            assert [each.payload["number"] for each in events] == list(range(60))
        assert len(await two.events.read(run_id="run_shared")) == 120
        with asking(postgres_url) as db:
            done = db.execute("SELECT count(*), count(result) FROM journal").fetchone()
        assert (done, await one.events.verify()) == ((120, 120), [])


async def test_a_follower_of_several_writers_misses_no_event_and_reads_none_twice(
    postgres_url: str, tmp_path: Path
) -> None:
    cipher = FileCipher(tmp_path / "key")
    seen: list[tuple[str, int]] = []
    positions = [0]
    expected = sum(1 + (number + name) % 4 for name in range(4) for number in range(25))
    async with AsyncExitStack() as stack:
        follower = await stack.enter_async_context(open_store(postgres_url, tmp_path))
        databases = [open_database(postgres_url, cipher=cipher) for _ in range(4)]
        for database in databases:
            stack.push_async_callback(database.close)

        async def write(name: int) -> None:
            writer = databases[name].shared.writer
            for number in range(25):
                for _ in range(1 + (number + name) % 4):
                    writer.put(event(call=call_ref(f"run_{name}_{number}")))
                delay_s = 0.004 * ((number + name) % 3)  # others begin later and commit before
                await writer.submit(partial(sleep, delay_s=delay_s))

        async def follow() -> None:
            while len(seen) < expected:
                await follower.events.wait(positions[-1], timeout_s=30)
                events = await follower.events.read(after=positions[-1], limit=9)
                seen.extend((one.run_id, one.seq) for one in events)
                positions.extend(one.id for one in events)

        async with asyncio.timeout(60):
            await asyncio.gather(follow(), *(write(name) for name in range(4)))

    assert len(seen) == len(set(seen)) == expected
    assert positions == sorted(positions)


def sleep(db: Connection, *, delay_s: float) -> None:
    db.execute("SELECT pg_sleep(%s)", (delay_s,))
