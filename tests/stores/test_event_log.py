"""The event log, on disk and in memory."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.stores.conftest import AnyStore
from tests.stores.samples import ANN, COMPLETED, EVE, REQUESTED, STARTED, call_ref, event, whole_run
from toolpost.contracts.events import EventCode, EventFilter, JsonText
from toolpost.contracts.storage import EventRecorder
from toolpost.stores.event_appender import MAX_HEADS
from toolpost.stores.sqlite import SQLiteStore


async def test_events_of_a_run_are_numbered_from_one_without_gaps(store: AnyStore) -> None:
    for name in ("run_a", "run_b"):
        for each in whole_run(name):
            store.events.emit(each)

    for name in ("run_a", "run_b"):
        assert [stored.seq for stored in await store.events.read(run_id=name)] == [1, 2, 3]


async def test_reading_sees_everything_emitted_before(store: AnyStore) -> None:
    store.events.emit(event(facts={"params": {"a": 1}}))

    (stored,) = await store.events.read()

    assert (stored.run_id, stored.call_id, stored.tenant, stored.at) == ("run_1", "call_1", "acme", 1000.0)
    assert stored.code is EventCode.TOOL_CALL_REQUESTED
    assert stored.payload == {"tool_name": "mail.send", "correlation_id": "corr_1", "params": {"a": 1}}


async def test_an_event_given_in_parts_is_stored_as_the_same_event_given_whole(store: AnyStore) -> None:
    assert isinstance(store.events, EventRecorder)
    for facts in ({"params": {"a": 1}}, {"summary": 3, "tool_name": "another"}, {}):
        store.events.record(call_ref(), COMPLETED, facts)
        (in_parts,) = await store.events.read(newest=True, limit=1)
        store.events.emit(event(COMPLETED, at=in_parts.at, facts=facts))
        (whole,) = await store.events.read(newest=True, limit=1)

        again = replace(in_parts, id=whole.id, seq=whole.seq, hash=whole.hash)
        assert (again, whole.seq) == (whole, in_parts.seq + 1)

    assert await store.events.verify() == []


async def test_only_what_redaction_lets_through_is_stored(store: AnyStore) -> None:
    ref = replace(call_ref(), redact=lambda facts: {"params": "[redacted]", "size": len(facts["params"])})
    store.events.emit(event(call=ref, facts={"params": JsonText('{"password":"hunter2"}')}))

    (stored,) = await store.events.read()

    assert stored.payload == {"tool_name": "", "correlation_id": "", "params": "[redacted]", "size": 22}


async def test_a_follower_goes_on_after_the_last_id_it_saw(store: AnyStore) -> None:
    for each in whole_run("run_a") + whole_run("run_b"):
        store.events.emit(each)
    first = await store.events.read(limit=4)

    rest = await store.events.read(after=first[-1].id)

    assert [(stored.run_id, stored.seq) for stored in first + rest] == [
        (run, seq) for run in ("run_a", "run_b") for seq in (1, 2, 3)
    ]
    assert await store.events.read(after=rest[-1].id) == []
    assert await store.events.read(limit=0) == []


async def test_a_run_can_be_followed_alone(store: AnyStore) -> None:
    for each in whole_run("run_a") + whole_run("run_b") + whole_run("run_a"):
        store.events.emit(each)
    first = await store.events.read(run_id="run_a", limit=2)

    rest = await store.events.read(run_id="run_a", after=first[-1].id)

    assert [stored.seq for stored in first + rest] == [1, 2, 3, 4, 5, 6]
    assert await store.events.read(run_id="run_x") == []


async def test_nothing_is_visible_to_another_tenant(store: AnyStore) -> None:
    for each in whole_run("run_a"):
        store.events.emit(each)

    assert await store.events.read(tenant=EVE.tenant) == []
    assert await store.events.read(tenant=EVE.tenant, run_id="run_a") == []
    assert await store.events.runs(tenant=EVE.tenant) == []
    assert await store.events.run("run_a", tenant=EVE.tenant) is None
    assert len(await store.events.read(tenant=ANN.tenant)) == 3


async def test_runs_are_listed_newest_first(store: AnyStore) -> None:
    for name in ("run_a", "run_b", "run_c"):
        for each in whole_run(name):
            store.events.emit(each)

    assert [run.run_id for run in await store.events.runs(limit=2)] == ["run_c", "run_b"]
    assert [run.run_id for run in await store.events.runs(tenant=ANN.tenant)] == ["run_c", "run_b", "run_a"]


async def test_a_run_says_how_it_stands(store: AnyStore) -> None:
    for each in whole_run("run_a"):
        store.events.emit(replace(each, at=1000.0 + each.code))

    run = await store.events.run("run_a")

    assert run is not None
    assert (run.tenant, run.user, run.tool_name, run.status, run.events) == ("acme", "ann", "mail.send", "completed", 3)
    assert (run.started_at, run.updated_at) == (1400.0, 1410.0)
    assert await store.events.run("run_b") is None


async def test_untouched_runs_verify(store: AnyStore) -> None:
    for each in whole_run("run_a") + whole_run("run_a"):
        store.events.emit(each)
        await store.events.flush()

    assert await store.events.verify("run_a") == []
    assert await store.events.verify("run_x") == ["there is no run 'run_x'"]


async def test_events_can_be_filtered_by_tool_code_and_time(store: AnyStore) -> None:
    for at, tool in ((1000.0, "mail.send"), (2000.0, "mail.read"), (3000.0, "web.get")):
        for code in (REQUESTED, COMPLETED):
            store.events.emit(event(code, call=call_ref(f"run_{tool}", tool=tool), at=at))

    async def found(only: EventFilter, **options: Any) -> list[int]:
        return [each.id for each in await store.events.read(only=only, **options)]

    assert await found(EventFilter(tool="mail.*")) == [1, 2, 3, 4]
    assert await found(EventFilter(tool="mail.read", codes=frozenset({COMPLETED}))) == [4]
    assert await found(EventFilter(since=2000.0), limit=3) == [3, 4, 5]
    assert await found(EventFilter(codes=frozenset({REQUESTED})), limit=2, newest=True) == [3, 5]
    assert await found(EventFilter(), after=4, newest=True) == [5, 6]


async def test_the_calls_of_a_run_that_have_not_ended_are_known_innermost_first(store: AnyStore) -> None:
    outer, inner, done = [call_ref("run_1", call_id, tool=call_id) for call_id in ("outer", "inner", "done")]
    for call in (outer, inner, done):
        store.events.emit(event(REQUESTED, call=call))
    store.events.emit(event(COMPLETED, call=done))

    calls = await store.events.open_calls("run_1", tenant="acme")

    assert [(call.call_id, call.tool_name, call.user) for call in calls] == [
        ("inner", "inner", "ann"),
        ("outer", "outer", "ann"),
    ]


async def test_there_is_room_at_first(store: AnyStore) -> None:
    store.events.emit(event())

    assert not store.events.congested
    await store.events.drain()


async def test_ids_that_are_not_unicode_are_written_out(store: AnyStore) -> None:
    store.events.emit(event(call=call_ref("run_\ud800", "call_\udfff")))
    store.events.emit(event(call=call_ref("run_\ud800", "call_é")))
    store.events.emit(event(call=call_ref("run_é")))

    stored = await store.events.read()

    assert [(each.run_id, each.seq) for each in stored] == [("run_\\ud800", 1), ("run_\\ud800", 2), ("run_é", 1)]
    assert await store.events.verify("run_\\ud800") == []


@pytest.mark.parametrize("at", [float("inf"), float("nan")])
async def test_an_event_of_a_run_may_have_an_odd_id_and_no_time(store: AnyStore, at: float) -> None:
    store.events.emit(event(EventCode.ARTIFACT_STORED, call=call_ref("run_1", "call_\ud800"), at=at))

    (stored,) = await store.events.read()

    assert (stored.call_id, stored.at) == ("call_\\ud800", 0.0)
    assert await store.events.verify() == []


@pytest.mark.slow
async def test_heads_that_are_no_longer_remembered_are_read_again(sqlite: SQLiteStore) -> None:
    for _ in range(2):
        for number in range(MAX_HEADS + 100):
            sqlite.events.emit(event(call=call_ref(f"run_{number}")))
        await sqlite.events.flush()

    assert {run.events for run in await sqlite.events.runs(limit=20_000)} == {2}
    assert await sqlite.events.verify("run_0") == []


@pytest.mark.parametrize("text", ["[", "[1]", "[[400,1.0]]", "[[1,1.0,{}]]", '[[400,"x",{}]]', "[[400,1.0,5]]", "7"])
async def test_a_damaged_event_keeps_nobody_from_the_others(
    sqlite: SQLiteStore, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    for code in (REQUESTED, STARTED, COMPLETED):
        sqlite.events.emit(event(code))
        await sqlite.events.flush()
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute("UPDATE segments SET events = ? WHERE seq = 2", (text,))

    told = await sqlite.events.read(run_id="run_1")

    assert [event.seq for event in told] == [1, 3]
    assert "run 'run_1': its events from 2 on are damaged and left out" in caplog.text
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
