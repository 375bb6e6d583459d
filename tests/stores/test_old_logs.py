"""Folders of versions before: whose log had no key, and whose events were one row each."""

import json
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from msgspec.structs import replace

from tests.stores.conftest import open_store
from tests.stores.samples import ANN, BOB, EVE, call_ref, event, whole_run
from toolpost.auth.keys import FileSealer
from toolpost.contracts.events import RunEvent
from toolpost.stores.chain import LogKey, join_ids, plain_link
from toolpost.stores.database import MIGRATIONS, migrate
from toolpost.stores.event_appender import make_ledger
from toolpost.stores.sealing import RowSealer

CHANGED = "event {} was changed, or an event before it was"


@contextmanager
def database_of(version: int, folder: Path) -> Iterator[sqlite3.Connection]:
    """A database with the tables of a version."""
    old = folder / "migrations"
    old.mkdir()
    for file in sorted(MIGRATIONS.glob("*.sql"))[:version]:
        shutil.copy(file, old)
    with closing(sqlite3.connect(folder / "toolpost.db", isolation_level=None)) as db:
        migrate(db, folder / "toolpost.db", old)
        yield db


def written_before(folder: Path, events: Sequence[RunEvent]) -> None:
    """A database as version 3 wrote it, with these events."""
    with database_of(3, folder) as db:
        heads: dict[str, tuple[int, bytes]] = {}
        for each in events:
            call, (seq, previous) = each.call, heads.get(each.call.run_id, (0, b""))
            ids = join_ids(call.run_id, call.call_id, call.tenant)
            text = json.dumps(each.payload)
            link = plain_link(previous, ids, seq=seq + 1, code=int(each.code), at=each.at, payload=text)
            row = (call.run_id, seq + 1, int(each.code), each.at, call.call_id, call.tenant, text, link)
            db.execute(
                "INSERT INTO events (run_id, seq, code, at, call_id, tenant, payload, hash) VALUES (?,?,?,?,?,?,?,?)",
                row,
            )
            heads[call.run_id] = (seq + 1, link)
            head = (call.run_id, call.tenant, call.user, call.tool_name, "completed", each.at, each.at, seq + 1, link)
            sql = "INSERT INTO runs VALUES (?,?,?,?,?,?,?,?,?,?,'own_x') ON CONFLICT DO UPDATE SET"
            sql += " last_seq = excluded.last_seq, last_hash = excluded.last_hash"
            db.execute(sql, (*head, call.call_id))


async def test_what_was_told_before_is_taken_over_and_goes_on(tmp_path: Path) -> None:
    written_before(tmp_path, [*whole_run("run_a"), *whole_run("run_b")])

    for _ in range(2):
        async with open_store(tmp_path) as store:
            for each in whole_run("run_b"):
                store.events.emit(each)
            assert await store.events.verify() == []
            assert [run.run_id for run in await store.events.runs()] == ["run_b", "run_a"]

    async with open_store(tmp_path) as store:
        events = await store.events.read()
    assert [each.id for each in events] == list(range(1, 13))
    assert [each.seq for each in events] == [1, 2, 3, *range(1, 10)]


async def test_a_run_that_was_broken_before_goes_on_to_show(tmp_path: Path) -> None:
    written_before(tmp_path, [*whole_run("run_a"), *whole_run("run_b")])
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute("UPDATE events SET payload = '{}' WHERE run_id = 'run_a' AND seq = 2")

    async with open_store(tmp_path) as store:
        store.events.emit(event(call=call_ref("run_a")))
        assert await store.events.verify() == [f"run 'run_a' of 'acme': {CHANGED.format(seq)}" for seq in (1, 2, 3)]


async def test_a_run_that_two_tenants_shared_becomes_two(tmp_path: Path) -> None:
    written_before(tmp_path, [*whole_run("run_a", who=ANN), *whole_run("run_a", who=EVE)])

    async with open_store(tmp_path) as store:
        runs = [await store.events.run("run_a", tenant=who.tenant) for who in (ANN, EVE)]
        assert await store.events.verify() == []

    assert [run and (run.events, run.status, run.tool_name) for run in runs] == [(3, "completed", "mail.send")] * 2


async def test_nothing_can_be_slipped_in_as_told_before(tmp_path: Path) -> None:
    async with open_store(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute("CREATE TABLE runs_before AS SELECT 'run_x' AS run_id, 'acme' AS tenant")

    async with open_store(tmp_path) as store:
        assert await store.events.runs() == []


def written_singly(folder: Path, *runs: Sequence[RunEvent], forgotten: str = "") -> None:
    """A database as version 7 wrote it: an event a row, with a digest and a link; the last run may be forgotten."""
    with database_of(7, folder) as db:
        ledger, id_ = make_ledger(db, RowSealer(FileSealer(folder / "key"))), 0
        for nr, events in enumerate(runs, 1):
            previous, call = b"", events[0].call
            user = "" if call.run_id == forgotten else call.user
            for seq, each in enumerate(events, 1):
                id_ += 1
                row, digest = single_row(ledger.key, each, id_, seq, previous)
                if call.run_id == forgotten:
                    payload = json.dumps({"tool_name": call.tool_name, "forgotten": True})
                    row = (*row[:7], user, payload, row[9], None)
                    row = (*row[:10], ledger.key.seal("toolpost forgot", (*row, digest)) + digest)
                db.execute(f"INSERT INTO events VALUES ({', '.join('?' * 11)})", row)
                previous = row[9]
            at = events[0].at
            names = (nr, call.run_id, call.tenant, user, call.tool_name)
            head = (*names, "completed", at, at, len(events), previous, call.call_id, 0)
            seal = ledger.key.seal("run", head)
            ledger.change(new=[seal])
            db.execute(f"INSERT INTO runs VALUES ({', '.join('?' * 14)})", (*head, seal, "own_x"))
        ledger.last_event, ledger.last_run, ledger.runs = id_, len(runs), len(runs)
        ledger.save(db)


def single_row(key: LogKey, told: RunEvent, id_: int, seq: int, previous: bytes) -> tuple[tuple[Any, ...], bytes]:
    call, code, text = told.call, int(told.code), json.dumps(told.payload)
    ids = join_ids(call.run_id, call.call_id, call.tenant, call.user)
    digest = key.mac("toolpost event", pack(">d", told.at) + f"{id_}|{seq}|{code}|{ids}|{text}".encode())
    link = sha256(previous + digest).digest()
    return (id_, call.run_id, seq, code, told.at, call.call_id, call.tenant, call.user, text, link, None), digest


async def test_events_that_were_a_row_each_are_taken_over_and_go_on(tmp_path: Path) -> None:
    runs = [whole_run("run_a"), whole_run("run_a", who=EVE), whole_run("run_b", who=BOB), whole_run("run_c")]
    runs[0] = [replace(each, facts={"note": "pay 100"}) for each in runs[0]]
    written_singly(tmp_path, *runs, forgotten="run_b")

    for _ in range(2):
        async with open_store(tmp_path) as store:
            for each in whole_run("run_c"):
                store.events.emit(each)
            assert await store.events.verify() == []

    async with open_store(tmp_path) as store:
        events, summaries = await store.events.read(), await store.events.runs()
    assert [each.id for each in events] == list(range(1, 19))
    assert [each.seq for each in events] == [1, 2, 3] * 3 + list(range(1, 10))
    assert dict(events[0].payload) == {"tool_name": "mail.send", "correlation_id": "corr_1", "note": "pay 100"}
    assert [dict(each.payload) for each in events[6:9]] == [{"tool_name": "mail.send", "forgotten": True}] * 3
    assert [(run.run_id, run.tenant, run.user, run.events, run.status) for run in summaries] == [
        ("run_c", "acme", "ann", 9, "completed"),
        ("run_b", "acme", "", 3, "completed"),
        ("run_a", "evil", "eve", 3, "completed"),
        ("run_a", "acme", "ann", 3, "completed"),
    ]


OF_A = "run 'run_a' of 'acme': events 1 to 3 were changed, or an event before them was"
OF_C = "run 'run_c' of 'acme': events 1 to 3 were changed, or an event before them was"
LEDGER = "the ledger of the log was changed, so that nobody can tell how many runs there should be"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE events SET code = 420 WHERE run_id = 'run_a' AND seq = 3", [OF_A]),
        ("UPDATE events SET forgotten = NULL WHERE run_id = 'run_c' AND seq = 1", [OF_C]),
        ("UPDATE events SET user = 'bob' WHERE run_id = 'run_c'", [OF_C]),
        ("UPDATE runs SET status = 'failed' WHERE run_id = 'run_a'", [OF_A]),
        ("DELETE FROM runs WHERE run_id = 'run_b'", [LEDGER, OF_A.replace("run_a", "run_b")]),
        ("UPDATE ledger SET runs = 7", [LEDGER]),
        ("DELETE FROM ledger", [LEDGER, *[OF_A.replace("run_a", f"run_{name}") for name in "abc"]]),
    ],
)
async def test_events_that_were_a_row_each_and_were_changed_go_on_to_show(
    tmp_path: Path, change: str, found: list[str]
) -> None:
    written_singly(tmp_path, *[whole_run(f"run_{name}") for name in "abc"], forgotten="run_c")
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        assert db.execute(change).rowcount > 0

    for _ in range(2):
        async with open_store(tmp_path) as store:
            assert await store.events.verify() == found
            assert len(await store.events.read()) == 9


GONE = "run 'run_a' of 'acme': the run's record ends at event 3, its events end at 0"


@pytest.mark.parametrize("is_keyed", [False, True])
async def test_a_run_whose_events_were_all_removed_goes_on_to_show(tmp_path: Path, *, is_keyed: bool) -> None:
    runs = [whole_run("run_a"), whole_run("run_b")]
    if is_keyed:
        written_singly(tmp_path, *runs)
    else:
        written_before(tmp_path, [*runs[0], *runs[1]])
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute("DELETE FROM events WHERE run_id = 'run_a'")

    async with open_store(tmp_path) as store:
        assert await store.events.verify() == [GONE]
        store.events.emit(event(call=call_ref("run_a")))
        assert len(await store.events.verify("run_a")) > 0


@pytest.mark.parametrize(
    "change",
    ["code = 9999", "at = 'x'", "call_id = x'ff'", "hash = 'text'", "forgotten = 'text'", "payload = x'ff'"],
)
async def test_a_damaged_row_keeps_nobody_from_opening_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    written_singly(tmp_path, whole_run("run_a"), whole_run("run_b"))
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute(f"UPDATE events SET {change} WHERE run_id = 'run_a' AND seq = 2")

    async with open_store(tmp_path) as store:
        problems, events = await store.events.verify(), await store.events.read()

    assert [problem.startswith("run 'run_a' of 'acme': event") for problem in problems] == [True, True]
    assert ([each.id for each in events], "event 2 of the log is damaged" in caplog.text) == ([1, 3, 4, 5, 6], True)


async def test_nothing_of_a_person_who_is_forgotten_later_stays_in_the_pages_of_before(tmp_path: Path) -> None:
    told = [replace(each, facts={"note": "of-ann-alone"}) for each in whole_run("run_a")]
    written_singly(tmp_path, told)

    async with open_store(tmp_path) as store:
        assert b"of-ann-alone" in (tmp_path / "toolpost.db-wal").read_bytes()
        await store.forget(ANN)

    assert b"of-ann-alone" not in (tmp_path / "toolpost.db").read_bytes()
