"""Limits of several processes, and the file that they share on one machine."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.stores.conftest import open_store
from tests.stores.limit_children import RATE, child, open_place
from toolpost.contracts.errors import StoreError
from toolpost.contracts.limits import Rate
from toolpost.contracts.storage import Store
from toolpost.stores.sqlite.store import SQLiteStore

HOURLY = Rate(interval_s=3600.0, burst=1)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
async def store(place: str) -> AsyncIterator[Store]:
    opened = await open_place(place)
    yield opened
    await opened.close()


@pytest.mark.programs
def test_eight_processes_never_exceed_a_rate(place: str) -> None:
    with ExitStack() as stack:
        children = [stack.enter_context(child("take", place)) for _ in range(8)]
        assert {each.stdout.readline() for each in children} == {"ready\n"}
        for each in children:
            each.stdin.write("go\n")
            each.stdin.flush()
        reports = [json.loads(each.stdout.readline()) for each in children]

    taken = sum(report[0] for report in reports)
    elapsed_s = max(report[2] for report in reports) - min(report[1] for report in reports)
    assert RATE.burst < taken <= RATE.burst + elapsed_s / RATE.interval_s + 1


@pytest.mark.programs
async def test_the_slots_of_a_killed_process_are_free(place: str, store: Store) -> None:
    with child("hold", place) as holder:
        assert holder.stdout.readline() == "[True, True, False]\n"
        assert not await store.limits.enter("x", 2)
        holder.kill()
    while not await store.limits.enter("x", 2, waiting=1):
        await store.limits.slot_freed(timeout_s=0.1)


async def test_the_first_process_begins_with_an_empty_file(tmp_path: Path) -> None:
    async with open_store(tmp_path) as first:
        assert await first.limits.take("a", HOURLY) == 0.0
        async with open_store(tmp_path) as second:
            assert await second.limits.take("a", HOURLY) > 0
    (tmp_path / "limits.db").write_bytes(b"damaged" * 1000)  # as after a power failure

    async with open_store(tmp_path) as third:
        assert await third.limits.take("a", HOURLY) == 0.0


async def test_a_store_without_limits_makes_no_file(sqlite: SQLiteStore, tmp_path: Path) -> None:
    await sqlite.limits.read_troubles()

    assert list(tmp_path.glob("limits*")) == []


async def test_a_limit_that_cannot_be_checked_admits_nothing(sqlite: SQLiteStore, tmp_path: Path) -> None:
    (tmp_path / "limits.db").mkdir()

    with pytest.raises(StoreError, match=r"limits.*cannot be checked, so nothing was run") as refused:
        await sqlite.limits.enter("x", 1)
    assert (refused.value.error_code, refused.value.is_retryable) == ("limits_unavailable", True)
    (tmp_path / "limits.db").rmdir()
    assert await sqlite.limits.enter("x", 1)


async def test_a_write_waits_for_that_of_another_process(sqlite: SQLiteStore, tmp_path: Path) -> None:
    assert await sqlite.limits.enter("x", 2)
    with sqlite3.connect(tmp_path / "limits.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        sqlite.limits.leave("x")  # later
        entering = asyncio.create_task(sqlite.limits.enter("x", 1))
        await asyncio.sleep(0)
        assert not entering.done()
        other.execute("COMMIT")
    while not await entering:
        entering = asyncio.create_task(sqlite.limits.enter("x", 1))
    other.close()


@pytest.mark.programs
async def test_after_a_crash_of_the_server_each_process_holds_its_slots_again(postgres_url: str) -> None:
    mine, other = await open_place(postgres_url), await open_place(postgres_url)
    assert [await mine.limits.enter("x", 2) for _ in range(2)] == [True, True]
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute("TRUNCATE toolpost.slots")  # as a crash empties unlogged tables
        server.execute(_END_CONNECTIONS)
        async with asyncio.timeout(30):
            while not await _is_reconnected(mine):
                pass
        with pytest.raises(StoreError, match="processes report their slots again"):
            await other.limits.enter("x", 3)
        server.execute("UPDATE toolpost.slots SET seen = 0 WHERE name = ''")  # some seconds later
    held = [await other.limits.enter("x", 3) for _ in range(2)]
    await mine.close()
    await other.close()

    assert held == [True, False]


_END_CONNECTIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%enter_slot%'
"""


async def _is_reconnected(store: Store) -> bool:
    try:
        await store.limits.read_troubles()
    except StoreError:
        return False
    return True
