"""The event log, on disk and in memory."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from toolpost.stores.run_chains import MAX_HEADS
from toolpost.stores.sqlite.store import SQLiteStore
from toolpost.testing.stores.samples import COMPLETED, REQUESTED, STARTED, call_ref, event, whole_run


@pytest.mark.slow
async def test_heads_that_are_no_longer_remembered_are_read_again(sqlite: SQLiteStore) -> None:
    for _ in range(2):
        for number in range(MAX_HEADS + 100):
            sqlite.events.emit(event(call=call_ref(f"run_{number}")))
        await sqlite.events.flush()

    assert {run.events for run in await sqlite.events.runs(limit=20_000)} == {2}
    assert await sqlite.events.verify("run_0") == []


@pytest.mark.parametrize("text", ["[", "[1]", "[[400,1.0]]", "[[1,1.0,{}]]", '[[400,"x",{}]]', "[[400,1.0,5]]", "7"])
async def test_a_damaged_event_keeps_no_one_from_the_others(
    sqlite: SQLiteStore, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    for code in (REQUESTED, STARTED, COMPLETED):
        sqlite.events.emit(event(code))
        await sqlite.events.flush()
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute("UPDATE segments SET events = ? WHERE seq = 2", (text,))

    told = await sqlite.events.read(run_id="run_1")

    assert [event.seq for event in told] == [1, 3]
    assert "run 'run_1': its events from 2 on are damaged and skipped" in caplog.text
    assert "event 2 was changed, or an event before it was" in await sqlite.events.verify("run_1")


@pytest.mark.usefixtures("one_segment_a_call")
async def test_events_of_runs_at_once_are_each_others_neighbours_within_their_run(sqlite: SQLiteStore) -> None:
    for pair in zip(whole_run("run_a"), whole_run("run_b"), strict=True):
        for each in pair:
            sqlite.events.emit(each)

    told = await sqlite.events.read()

    assert [(each.id, each.run_id, each.seq) for each in told] == [
        (1, "run_a", 1),
        (2, "run_a", 2),
        (3, "run_a", 3),
        (4, "run_b", 1),
        (5, "run_b", 2),
        (6, "run_b", 3),
    ]
    assert [each.id for each in await sqlite.events.read(after=1, limit=3)] == [2, 3, 4]
    assert [each.id for each in await sqlite.events.read(limit=2, newest=True)] == [5, 6]
    assert await sqlite.events.verify() == []
