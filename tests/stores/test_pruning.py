"""Retention, on disk and in memory."""

import asyncio
import os
from pathlib import Path

from tests.stores.conftest import AnyStore
from toolpost.contracts.storage import Retention
from toolpost.stores import content_files
from toolpost.stores.pauses import PlannerPauses
from toolpost.stores.sqlite.store import SQLiteStore
from toolpost.testing.stores.samples import artifact, whole_run

OLD, NEW, NOW = 1000.0, 9000.0, 10_000.0
A_WHILE = Retention(max_age_s=5000.0)


async def test_a_pause_that_was_released_stays_in_reach_of_its_token(store: AnyStore) -> None:
    now = [OLD]
    pauses = PlannerPauses(store.state, ttl_s=100.0, clock=lambda: now[0])
    token = await pauses.keep({"step": 1})
    claimed = await pauses.claim(token)
    now[0] = NEW
    await claimed.release({"step": 2})

    assert (await store.prune(A_WHILE, now=NOW))["state"] == 0
    assert await pauses.take(token) == {"step": 2}


async def test_files_that_no_one_names_go(sqlite: SQLiteStore, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts" / "ab"
    folder.mkdir(parents=True)
    (folder / ("ab" * 32)).write_bytes(b"stray")
    fresh, stale = folder / "1.part", folder / "2.part"
    fresh.touch()
    stale.touch()
    os.utime(fresh, (NOW, NOW))
    os.utime(stale, (NOW - content_files.STALE_S - 1,) * 2)

    removed = await sqlite.prune(Retention(), now=NOW)

    assert removed["files"] == 1
    assert list(folder.iterdir()) == [fresh]


async def test_pruning_beside_writers_loses_nothing(sqlite: SQLiteStore) -> None:
    async def put(number: int) -> bytes:
        ref = await sqlite.artifacts.put(b"%d" % (number % 7), artifact(at=NEW))
        return await sqlite.artifacts.read(ref.id, tenant=None)

    read, _ = await asyncio.gather(
        asyncio.gather(*(put(number) for number in range(100))),
        asyncio.gather(*(sqlite.prune(A_WHILE, now=NOW) for _ in range(20))),
    )

    assert read == [b"%d" % (number % 7) for number in range(100)]


async def test_more_runs_than_one_step_removes_all_go(sqlite: SQLiteStore) -> None:
    for number in range(450):
        for each in whole_run(f"run_{number}", at=OLD):
            sqlite.events.emit(each)

    removed = await sqlite.prune(A_WHILE, now=NOW)

    assert (removed["runs"], removed["events"]) == (450, 1350)
