"""Opening a data folder, in every state that one can be in."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.stores.conftest import open_store
from toolpost.contracts.errors import StoreError
from toolpost.stores.encryption import NoCipher
from toolpost.stores.sqlite.database import MIGRATIONS, migrate, open_writable
from toolpost.stores.sqlite.store import open_sqlite_store


async def test_folder_and_database_are_for_their_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    async with open_store(folder) as store:
        await store.cancels.request("run_1", tenant=None, by="acme:ann")
        modes = {path.name: path.stat().st_mode & 0o777 for path in folder.glob("toolpost.db*")}

    assert folder.stat().st_mode & 0o777 == 0o700
    assert modes == {"toolpost.db": 0o600, "toolpost.db-wal": 0o600, "toolpost.db-shm": 0o600}


def test_every_commit_is_synced_and_readers_do_not_wait(tmp_path: Path) -> None:
    with closing(open_writable(tmp_path / "toolpost.db", busy_s=1.5)) as db:
        pragmas = [
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
        assert pragmas == ["wal", 2, 1]
        assert db.execute("PRAGMA busy_timeout").fetchone()[0] == 1500


async def test_a_store_opens_again(tmp_path: Path) -> None:
    for _ in range(2):
        async with open_store(tmp_path) as store:
            await store.cancels.request("run_1", tenant=None, by="acme:ann")
            assert (await store.cancels.requested(["run_1"])).keys() == {"run_1"}


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.touch()

    with pytest.raises(StoreError, match=f"data folder '{path}' is a file, or below one; move the file"):
        open_store(path)
    with pytest.raises(StoreError, match="is a file, or below one"):
        open_store(path / "below")


# Nobody can write to sysfs, not even root, to whom file modes mean nothing.
@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="no sysfs here: nothing that root cannot write to")
@pytest.mark.parametrize("path", ["/sys/kernel", "/sys/kernel/toolpost"])
def test_a_folder_that_is_read_only_is_named(path: str) -> None:
    with pytest.raises(StoreError, match=rf"data folder '{path}' cannot be (written|made): .*; .*set data_dir"):
        open_sqlite_store(Path(path), cipher=NoCipher())


def test_a_database_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "toolpost.db").mkdir()

    with pytest.raises(StoreError, match=r"database '.*toolpost.db': .*Is a directory"):
        open_store(tmp_path)


@pytest.mark.parametrize(
    "content", [b"this is no database, but some text" * 100, b"SQLite format 3\0" + b"\xff" * 4096]
)
def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "toolpost.db"
    path.write_bytes(content)

    with pytest.raises(StoreError, match=r"database '.*toolpost.db': .*not a database.*move it away"):
        open_store(tmp_path)
    assert path.read_bytes() == content
    assert list((tmp_path / "owners").iterdir()) == []


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    async with open_store(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db:
        db.execute("PRAGMA user_version = 99")

    with pytest.raises(StoreError, match=r"has version 99, this toolpost knows versions up to \d+; upgrade toolpost"):
        open_store(tmp_path)


async def test_a_database_locked_by_another_program_is_named(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "toolpost.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match=r"database '.*toolpost.db': database is locked; .*close that program"):
            open_sqlite_store(tmp_path, cipher=NoCipher(), busy_s=0.05)


def test_a_migration_that_fails_leaves_the_version_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0001_one.sql").write_text("CREATE TABLE one (x);\nCREATE TABLE more (x);\n")
    (folder / "0002_two.sql").write_text("CREATE TABLE two (x);\nCREATE TABLE one (x);\n")
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as db:
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            migrate(db, tmp_path / "x.db", folder)
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master ORDER BY name")]
        assert (tables, db.execute("PRAGMA user_version").fetchone()[0]) == (["more", "one"], 1)

        (folder / "0002_two.sql").write_text("CREATE TABLE two (x);")
        migrate(db, tmp_path / "x.db", folder)
        assert db.execute("PRAGMA user_version").fetchone()[0] == 2


async def test_a_migration_waits_until_processes_of_another_version_have_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, folder)
    (folder / "9999_next.sql").write_text("CREATE TABLE next (id INTEGER);")
    monkeypatch.setattr("toolpost.stores.sqlite.liveness.version", {"toolpost": "0.0.1"}.get)
    path = tmp_path / "toolpost.db"
    async with open_store(tmp_path):
        with (
            closing(sqlite3.connect(path, isolation_level=None)) as db,
            pytest.raises(StoreError, match=r"processes of 0\.0\.1 use them; stop these processes first"),
        ):
            migrate(db, path, folder)

    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, path, folder)
        assert db.execute("SELECT count(*) FROM next").fetchone() == (0,)
