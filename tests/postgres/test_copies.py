"""Move, back up and restore between SQLite and PostgreSQL, and what `toolpost db check` finds."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import IntegrityError, connect
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.cli.program import child_environment
from tests.postgres.databases import drop_database, new_database
from tests.postgres.poolers import pooler
from tests.postgres.server import PASSWORD, PostgreSQL
from tests.stores.places import ANN_NAME, BOSS, Kept, back_up_and_continue, fill, paid, read_everything
from tests.stores.places import settle_unknown_calls as settle
from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.stores.moves import move
from toolpost.stores.postgres.database import MIGRATIONS
from toolpost.stores.registry import find_backend
from toolpost.stores.transfer import COPIED, copy_rows

pytestmark = pytest.mark.programs

NEWEST = len(list(MIGRATIONS.glob("*.sql")))
SERVER_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'toolpost'"
FILE_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


@pytest.fixture(autouse=True)
def _unpaid() -> None:
    paid.clear()


@pytest.fixture
def url(postgres: PostgreSQL) -> Iterator[str]:
    """An empty database, without tables."""
    made = new_database(postgres, migrated=False)
    yield made
    drop_database(postgres, made)


@pytest.fixture
def sqlite(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "data")


@pytest.fixture
def server(tmp_path: Path, url: str) -> Kept:
    """The same data folder with PostgreSQL."""
    return Kept(tmp_path / "data", url)


def without_numbers(content: Any) -> Any:
    """The rows and the log, without what each database numbers by itself."""
    rows, log = content
    return rows, (log.key, log.runs, log.total, log.is_intact)


@pytest.mark.req("SCALE-26")
async def test_a_moved_store_has_all_rows_and_its_calls_continue(sqlite: Kept, server: Kept) -> None:
    async with sqlite.open() as box:
        question = await fill(box)
        last = (await box.store.events.read())[-1].id
    before = sqlite.content()

    done = await move(sqlite.place, server.place)

    assert without_numbers(server.content()) == without_numbers(before)
    assert (done.problems, done.rows["runs"] > 1) == ([], True)
    async with server.open() as box:
        approved = await box.approve(question, by=BOSS)
        followed = await box.store.events.read(after=last)
    assert (approved.status, paid) == ("completed", ["bob"])
    assert followed[0].id > last
    await read_everything(server)


@pytest.mark.req("SCALE-26")
async def test_the_old_database_refuses_to_open_and_names_the_new_one(sqlite: Kept, server: Kept) -> None:
    async with sqlite.open() as box:
        await fill(box)
    await move(sqlite.place, server.place)

    with pytest.raises(StoreError, match=r"was moved to postgresql://.*set `database` to that address"):
        async with sqlite.open():
            pass
    with pytest.raises(StoreError, match="was moved to"):
        await move(sqlite.place, server.place)
    # A program that had it open all the time.
    with closing(connect(sqlite.folder / "toolpost.db")) as late, pytest.raises(IntegrityError, match="was moved"):
        late.execute("UPDATE pending SET status = 'open'")


async def test_a_store_moves_back(sqlite: Kept, server: Kept, url: str) -> None:
    async with server.open() as box:
        await fill(box)
    before = server.content()

    await move(server.place, sqlite.place)

    assert without_numbers(sqlite.content()) == without_numbers(before)
    await read_everything(sqlite)
    with pytest.raises(StoreError, match=r"was moved to .*toolpost\.db"):
        async with server.open():
            pass
    with psycopg.connect(url) as late, pytest.raises(psycopg.Error, match="was moved"):
        late.execute("UPDATE toolpost.pending SET status = 'open'")


async def test_a_database_with_data_is_not_overwritten(sqlite: Kept, server: Kept) -> None:
    async with sqlite.open() as box, server.open() as other:
        await fill(box)
        await other.call("note", {"text": "theirs"}, user=ANN_NAME)

    with pytest.raises(StoreError, match=r"is not empty: it contains .*of runs"):
        await move(sqlite.place, server.place)

    await read_everything(sqlite)  # it stays in use
    async with server.open() as other:
        assert "theirs" in repr([event.payload for event in await other.store.events.read()])


@pytest.mark.parametrize("used", ["source", "target"])
async def test_a_database_that_a_process_uses_is_not_moved(sqlite: Kept, server: Kept, used: str) -> None:
    async with sqlite.open() as box:
        await fill(box)

    async with (sqlite if used == "source" else server).open():
        with pytest.raises(StoreError, match="1 process uses the database"):
            await move(sqlite.place, server.place)

    await read_everything(sqlite)


async def test_a_move_that_ended_after_the_copy_is_finished_by_the_next(sqlite: Kept, server: Kept) -> None:
    async with sqlite.open() as box:
        await fill(box)
    with (
        sqlite.place.backend.lock(sqlite.options) as source,
        server.place.backend.fill(server.options, schema=source.schema) as target,
    ):
        copy_rows(source, target)
        target.write_log(source.log, position=source.log.last_event)

    assert (await move(sqlite.place, server.place)).resumed
    await read_everything(server)


def db(*arguments: str, folder: Path, url: str) -> "subprocess.Popen[str]":
    environment = child_environment(THE_DATABASE=url)
    command = [sys.executable, "-m", "toolpost", "db", *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)


def wait_for_lock(connection: psycopg.Connection[Any]) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    while connection.execute(waiting.encode()).fetchone() == (0,):
        pass


async def test_a_move_that_is_killed_changes_nothing(sqlite: Kept, server: Kept, tmp_path: Path, url: str) -> None:
    async with sqlite.open() as box:
        await fill(box)
    before = sqlite.content()
    (tmp_path / "toolpost.yaml").write_text("data_dir: data\n")
    server.place.backend.migrate(server.options)
    with psycopg.connect(url) as blocker, psycopg.connect(url, autocommit=True) as observer:
        blocker.execute("LOCK TABLE toolpost.metrics_position")  # the last table that is copied
        with db("move", "--to", "env:THE_DATABASE", folder=tmp_path, url=url) as moving:
            await asyncio.to_thread(wait_for_lock, observer)
            moving.kill()

    assert sqlite.content() == before
    await move(sqlite.place, server.place)
    assert without_numbers(server.content()) == without_numbers(before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_backup_that_is_interrupted_leaves_no_file(
    server: Kept, tmp_path: Path, url: str, number: signal.Signals
) -> None:
    async with server.open() as box:
        await fill(box)
    (tmp_path / "toolpost.yaml").write_text("data_dir: data\ndatabase: ${THE_DATABASE}\n")
    with psycopg.connect(url) as blocker, psycopg.connect(url, autocommit=True) as observer:
        blocker.execute("LOCK TABLE toolpost.segments")
        with db("backup", "backup.zip", folder=tmp_path, url=url) as saving:
            await asyncio.to_thread(wait_for_lock, observer)
            saving.send_signal(number)
            said, _ = saving.communicate()

    assert (saving.returncode, said) == (130, "interrupted; no backup was written.\n")
    assert not [*tmp_path.glob("backup*")]


def test_a_migration_that_is_killed_leaves_nothing_behind(tmp_path: Path, url: str) -> None:
    (tmp_path / "toolpost.yaml").write_text("data_dir: data\ndatabase: ${THE_DATABASE}\n")
    with psycopg.connect(url) as blocker, psycopg.connect(url, autocommit=True) as observer:
        blocker.execute("CREATE SCHEMA toolpost")  # not committed: another one waits for it
        with db("migrate", folder=tmp_path, url=url) as migrating:
            wait_for_lock(observer)
            migrating.kill()
        blocker.rollback()
        assert observer.execute("SELECT to_regnamespace('toolpost')").fetchone() == (None,)

    with db("migrate", folder=tmp_path, url=url) as again:
        text, _ = again.communicate()
    assert (again.returncode, f"created with version {NEWEST}" in text) == (0, True)


@pytest.mark.req("SCALE-25")
async def test_a_backup_of_postgresql_is_restored_with_open_calls_unknown(
    server: Kept, tmp_path: Path, postgres: PostgreSQL
) -> None:
    backup = await back_up_and_continue(server, tmp_path)
    async with server.open() as box:
        assigned = (await box.store.events.read())[-1].id
    other = new_database(postgres, migrated=False)
    try:
        restored = Kept(tmp_path / "restored", other)
        restored.take_key(server)
        assert restored.restore(backup) == 2
        await settle(restored)
        await read_everything(restored)
        async with restored.open() as box:
            await box.call("note", {"text": "new"}, user=ANN_NAME)
            followed = await box.store.events.read(after=assigned)
        assert "new" in repr([event.payload for event in followed])
        with pytest.raises(StoreError, match="is not empty"):
            restored.restore(backup)
    finally:
        drop_database(postgres, other)


@pytest.mark.parametrize("direction", ["to PostgreSQL", "to SQLite"])
async def test_a_backup_of_one_database_is_restored_into_the_other(
    sqlite: Kept, server: Kept, tmp_path: Path, url: str, direction: str
) -> None:
    source = sqlite if direction == "to PostgreSQL" else server
    backup = await back_up_and_continue(source, tmp_path)
    target = Kept(tmp_path / "restored", url if source is sqlite else None)
    target.take_key(source)

    assert target.restore(backup) == 2
    await settle(target)
    await read_everything(target)


async def test_a_backup_is_of_one_moment_while_others_write(server: Kept, sqlite: Kept, tmp_path: Path) -> None:
    async with server.open() as box:

        async def write() -> None:
            for number in range(60):
                await box.call("note", {"text": str(number)}, user=ANN_NAME)

        writing = asyncio.ensure_future(write())
        path = await asyncio.to_thread(server.back_up, tmp_path / "during.zip")
        await writing
    restored = Kept(tmp_path / "restored")
    restored.take_key(server)
    restored.restore(path)

    async with restored.open() as box:
        assert await box.store.events.verify() == []


async def test_a_key_that_is_not_that_of_the_data_is_refused(server: Kept, tmp_path: Path, url: str) -> None:
    async with server.open() as box:
        await fill(box)
    other = Kept(tmp_path / "other", url)

    for use in (lambda: other.back_up(tmp_path / "backup.zip"), lambda: asyncio.run(move(other.place, server.place))):
        with pytest.raises(StoreError, match="was encrypted with another key than"):
            await asyncio.to_thread(use)
    assert not (tmp_path / "backup.zip").exists()


def texts(kept: Kept) -> list[str]:
    found = list(find_backend(kept.options.database).check(kept.options))
    return [f"{one.status}: {one.text}" for one in found]


async def test_a_check_names_the_version_the_processes_and_the_server(server: Kept) -> None:
    async with server.open() as box:
        await fill(box)
        used = texts(server)
    unused = texts(server)

    assert f"ok: version {NEWEST} of {NEWEST}" in used
    assert "ok: notifications arrive" in used
    assert "ok: the clocks of the server and of this machine agree" in used
    assert any(text.startswith("note: fsync is off") for text in used)  # as the server of the tests is started
    assert any(text.startswith("ok: 1 on ") for text in used)
    assert "ok: no process uses it" in unused


@pytest.mark.req("SCALE-27")
def test_a_check_finds_a_pooler_that_drops_notifications(
    server: Kept, postgres: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setattr("toolpost.stores.postgres.checks.NOTIFIED_S", 0.3)
    with pooler(postgres.port) as port:
        found = texts(Kept(tmp_path / "pooled", postgres.tcp_url(port=port)))

    assert any(text.startswith("broken: notifications do not arrive: a connection pooler") for text in found)


def test_a_check_finds_a_database_that_is_read_only(server: Kept, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        setting = SQL("ALTER DATABASE {} SET default_transaction_read_only = on")
        connection.execute(setting.format(Identifier(connection.info.dbname)))

    assert "broken: it is read-only: a standby, or default_transaction_read_only" in "\n".join(texts(server))


async def test_a_check_finds_a_newer_version_missing_tables_and_a_moved_database(
    server: Kept, sqlite: Kept, url: str
) -> None:
    async with server.open() as box:
        await fill(box)
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO toolpost.migrations VALUES (999, 0)")
    newer = texts(server)
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM toolpost.migrations WHERE number = 999")
        connection.execute("ALTER TABLE toolpost.cancels RENAME TO other")
    incomplete = texts(server)
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE toolpost.other RENAME TO cancels")
    await move(server.place, sqlite.place)

    assert incomplete[-1].endswith("are missing: cancels; restore a backup")
    assert newer == [f"broken: version 999, newer than this toolpost knows ({NEWEST}); upgrade it"]
    assert any("was moved to" in text for text in texts(server))


def test_a_wrong_password_is_explained_and_never_printed(tmp_path: Path, postgres: PostgreSQL) -> None:
    address = postgres.tcp_url().replace("postgres@", "postgres:wrong-canary@")
    (tmp_path / "toolpost.yaml").write_text("data_dir: data\ndatabase: ${THE_DATABASE}\n")
    wrong = Kept(tmp_path / "data", address)

    with db("migrate", "--json", folder=tmp_path, url=address) as asking:
        printed, _ = asking.communicate()
    with pytest.raises(StoreError) as refused:
        wrong.back_up(tmp_path / "backup.zip")

    said = [printed, str(refused.value), *texts(wrong)]
    assert asking.returncode == 1
    assert ["check the name and the password" in text for text in said] == [True] * 3
    assert "wrong-canary" not in repr(said)


def test_an_address_that_cannot_be_read_is_refused_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the URL is not valid") as refused:
        texts(Kept(tmp_path, "postgresql://ann:wrong-canary@[half/db"))
    assert "wrong-canary" not in str(refused.value)


@pytest.mark.req("FUT-04", "STATE-03")
def test_the_planner_state_of_the_page_is_shared_by_postgresql(tmp_path: Path, url: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "planner-storage.md").read_text(encoding="utf-8")
    [program] = [part.partition("```")[0] for part in page.split("```python\n") if "open_state_store" in part[:900]]

    environment = {**os.environ, "PLANNER_DATABASE": url, "PYTHONPATH": child_environment()["PYTHONPATH"]}
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout

    assert shown == "step 4, after 'yes'\n'this pause was resumed before'\n"
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM toolpost.state WHERE kind = 'pause'").fetchone() == (1,)


async def test_every_table_is_copied_or_is_of_processes_only(server: Kept, sqlite: Kept, url: str) -> None:
    async with server.open(), sqlite.open():
        pass
    with psycopg.connect(url) as connection:
        found = {name for (name,) in connection.execute(SERVER_TABLES)}
    with closing(connect(sqlite.folder / "toolpost.db")) as file:
        tables = file.execute(FILE_TABLES).fetchall()

    of_limits = {"buckets", "slots", "breakers", "gates"}
    assert found - set(COPIED) == {"ledger", "meta", "migrations", "owners"} | of_limits
    assert {name for (name,) in tables} - set(COPIED) == {"ledger"}
