"""Folders from before the log had a key."""

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.stores.conftest import open_store
from tests.stores.samples import ANN, EVE, whole_run
from toolpost.contracts.events import RunEvent
from toolpost.stores.chain import join_ids, payload_text, plain_link
from toolpost.stores.database import MIGRATIONS, migrate

BROKEN = "the run's record (whose it is, which tool, how it stands) was changed"


def written_before(folder: Path, events: Sequence[RunEvent]) -> None:
    """A database as version 3 wrote it, with these events."""
    old = folder / "migrations"
    old.mkdir()
    for file in sorted(MIGRATIONS.glob("*.sql"))[:3]:
        shutil.copy(file, old)
    with closing(sqlite3.connect(folder / "toolpost.db", isolation_level=None)) as db:
        migrate(db, folder / "toolpost.db", old)
        heads: dict[str, tuple[int, bytes]] = {}
        for each in events:
            call, (seq, previous) = each.call, heads.get(each.call.run_id, (0, b""))
            ids = join_ids(call.run_id, call.call_id, call.tenant)
            text = payload_text(each)
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
        assert await store.events.verify() == [f"run 'run_a' of 'acme': {BROKEN}"]


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
