"""Transactions of several processes on one PostgreSQL database."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import IdempotencyRecord
from toolpost.stores.encryption import NoCipher
from toolpost.stores.postgres.calls import PostgresIdempotencyStore
from toolpost.stores.postgres.changes import CHANNEL
from toolpost.stores.postgres.database import Connection
from toolpost.stores.postgres.store import OpenDatabase, open_database
from toolpost.testing.stores.samples import ANN, call_ref, event

pytestmark = pytest.mark.programs
Open = Callable[[], OpenDatabase]
RECORD = IdempotencyRecord(call_id="call_1", tool_name="pay", arguments_hash="h")


@pytest.fixture
async def open_again(postgres_url: str) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        def opened() -> OpenDatabase:
            database = open_database(postgres_url, cipher=NoCipher())
            stack.push_async_callback(database.close)
            return database

        yield opened


def rows(sql: str) -> Callable[[Connection], list[tuple[Any, ...]]]:
    return lambda db: db.execute(sql).fetchall()  # type: ignore[arg-type, unused-ignore]


async def test_processes_that_append_to_one_run_at_the_same_time_number_its_events_without_gaps(
    open_again: Open,
) -> None:
    one, two = open_again(), open_again()

    async def append(database: OpenDatabase) -> None:
        for number in range(40):
            database.shared.writer.put(event(call=call_ref("run_shared"), facts={"number": number}))
            await database.shared.writer.flush()

    await asyncio.gather(append(one), append(two))

    found = await one.shared.reader.query(rows("SELECT seq, last_id FROM segments ORDER BY seq"))
    assert [seq for seq, _ in found] == list(range(1, 81))
    assert sorted(found) == sorted(found, key=lambda row: row[1])
    assert await one.shared.reader.query(rows("SELECT count(*), sum(last_seq) FROM runs")) == [(1, 80)]


async def test_a_function_that_fails_harms_no_other(open_again: Open) -> None:
    writer = open_again().shared.writer

    def fail(db: Connection) -> None:
        db.execute("INSERT INTO metrics_position VALUES (7)")
        raise LookupError("on purpose")

    results = await asyncio.gather(
        writer.submit(rows("INSERT INTO metrics_position VALUES (1) RETURNING 1")),
        writer.submit(fail),
        writer.submit(rows("no such statement")),
        writer.submit(rows("SELECT position FROM metrics_position ORDER BY 1")),
        return_exceptions=True,
    )

    assert results[0] == [(1,)]
    assert isinstance(results[1], LookupError)
    assert isinstance(results[2], StoreError)
    assert results[3] == [(0,), (1,)]


async def test_a_key_is_free_after_its_reservation_was_cancelled_and_released(open_again: Open) -> None:
    shared = open_again().shared
    keys, batch = PostgresIdempotencyStore(shared), threading.Event()
    held = asyncio.ensure_future(shared.writer.submit(lambda _: batch.wait()))
    other = asyncio.ensure_future(keys.release(ANN, "other"))  # so that releases come first in the batch
    reserved = asyncio.ensure_future(keys.reserve(ANN, "k1", RECORD))
    await asyncio.sleep(0)

    reserved.cancel()
    released = asyncio.ensure_future(keys.release(ANN, "k1", call_id=RECORD.call_id))
    await asyncio.sleep(0)
    batch.set()
    await asyncio.gather(held, other, released)

    assert await keys.reserve(ANN, "k1", replace(RECORD, call_id="call_2")) is None


async def test_a_waiting_task_is_woken_by_the_events_of_another_process(open_again: Open) -> None:
    one, two = open_again(), open_again()
    waiting = asyncio.ensure_future(two.shared.changes.wait({("events",): 0}, timeout_s=30))
    await asyncio.sleep(0)
    one.shared.writer.put(event())
    await one.shared.writer.flush()

    assert (await waiting)[("events",)] > 0


async def test_a_notification_of_another_program_does_not_stop_the_listener(
    open_again: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.stores.postgres.store.SLOW_POLL_S", 3600.0)
    one, two = open_again(), open_again()
    waiting = asyncio.ensure_future(two.shared.changes.wait({("events",): 0}, timeout_s=30))
    await asyncio.sleep(0)
    for payload in ("e", "enonsense", "e-1", "?", ""):
        await one.shared.writer.submit(rows(f"SELECT pg_notify('{CHANNEL}', '{payload}')"))
    one.shared.writer.put(event())
    await one.shared.writer.flush()

    assert (await waiting)[("events",)] > 0
