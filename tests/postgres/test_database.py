"""The PostgreSQL database itself: migrations, and servers that refuse."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import LiteralString

import pytest
from psycopg.sql import SQL

from tests.postgres.databases import drop_database, new_database
from tests.postgres.server import PASSWORD, PostgreSQL
from tests.postgres.stores import asking, open_store
from toolpost.auth.keys import FileCipher
from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.stores.postgres.database import MIGRATIONS, Database, migrate, read_version
from toolpost.stores.postgres.store import open_postgres_store
from toolpost.stores.sqlite.store import open_sqlite_store
from toolpost.testing.stores.samples import intent

pytestmark = pytest.mark.programs

NEWEST = len(list(MIGRATIONS.glob("*.sql")))
# What SQLite has otherwise: the version and the moves of its file, the order of rows, one writer.
ONLY_POSTGRES = {
    "migrations": {"number", "at"},
    "owners": None,
    "meta": None,
    "journal": {"nr"},
    "pending": {"nr"},
    "artifacts": {"nr"},
}


@pytest.fixture
def empty_url(postgres: PostgreSQL) -> Iterator[str]:
    url = new_database(postgres, migrated=False)
    yield url
    drop_database(postgres, url)


async def test_both_databases_have_the_same_tables_and_columns(postgres_url: str, tmp_path: Path) -> None:
    await open_sqlite_store(tmp_path, cipher=FileCipher(tmp_path / "key")).close()
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        lite = {
            name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")}
            for name in names
            if not name.startswith("sqlite_")
        }
    with asking(postgres_url) as post:
        found = post.execute(
            "SELECT table_name, column_name, data_type, collation_name FROM information_schema.columns "
            "WHERE table_schema = 'toolpost' AND table_name NOT IN "
            "(SELECT relname FROM pg_class WHERE relpersistence = 'u')"  # limits, which SQLite has in another file
        ).fetchall()
    large = {table: {column for name, column, _, _ in found if name == table} for table, _, _, _ in found}

    for table, columns in ONLY_POSTGRES.items():
        large[table] -= columns if columns is not None else large[table]
    assert {table: columns for table, columns in large.items() if columns} == lite
    assert {kind for _, _, kind, _ in found} == {"bigint", "bytea", "double precision", "text"}
    assert {collation for _, _, kind, collation in found if kind == "text"} == {"C"}


def test_migrations_have_the_numbers_of_those_of_sqlite() -> None:
    folder = Path(__file__).parents[2] / "src" / "toolpost" / "stores"
    names = [
        sorted(path.name for path in (folder / kind / "migrations").glob("*.sql")) for kind in ("sqlite", "postgres")
    ]
    assert names[0] == names[1]
    assert all(re.fullmatch(r"\d{4}_\w+\.sql", name) for name in names[0])


def test_a_migration_that_is_killed_half_way_leaves_the_old_version(empty_url: str, tmp_path: Path) -> None:
    first = MIGRATIONS / "0001_first.sql"
    (tmp_path / first.name).write_bytes(first.read_bytes())
    (tmp_path / "0002_second.sql").write_text(
        "CREATE TABLE half (id bigint); SELECT pg_terminate_backend(pg_backend_pid());"
    )
    with pytest.raises(Exception, match="terminating connection"), asking(empty_url) as db:
        migrate(db, "here", tmp_path)
    with asking(empty_url) as db:
        assert read_version(db) == 1
        assert db.execute("SELECT to_regclass('toolpost.half')").fetchone() == (None,)

    (tmp_path / "0002_second.sql").write_text("CREATE TABLE whole (id bigint);")
    with asking(empty_url) as db:
        migrate(db, "here", tmp_path)
        assert read_version(db) == 2


async def test_a_migration_waits_until_processes_of_another_version_have_stopped(
    postgres_url: str, tmp_path: Path
) -> None:
    for file in MIGRATIONS.glob("*.sql"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "9999_next.sql").write_text("CREATE TABLE next (id bigint);")
    async with open_store(postgres_url, tmp_path) as old:
        with asking(postgres_url) as db:
            db.execute("UPDATE owners SET version = '0.0.1' WHERE id = %s", (old.owner_id,))
            with pytest.raises(StoreError, match=r"processes of 0\.0\.1 use them; stop these processes first"):
                migrate(db, "here", tmp_path)
            assert db.execute("SELECT to_regclass('toolpost.next')").fetchone() == (None,)
            db.execute("UPDATE owners SET until = 0")
            migrate(db, "here", tmp_path)
            assert read_version(db) == 9999


async def test_a_newer_version_is_refused_with_advice(postgres_url: str, tmp_path: Path) -> None:
    with asking(postgres_url) as db:
        db.execute("INSERT INTO migrations VALUES (99, 0)")

    with pytest.raises(
        StoreError, match=rf"has version 99, this toolpost knows versions up to {NEWEST}; upgrade toolpost"
    ):
        open_store(postgres_url, tmp_path)


async def test_another_key_is_refused(postgres_url: str, tmp_path: Path) -> None:
    async with open_store(postgres_url, tmp_path) as store:
        await store.journal.begin(intent())
    other = FileCipher(tmp_path / "other")

    with pytest.raises(StoreError, match="encrypted with another key"):
        open_postgres_store(postgres_url, tmp_path, cipher=other)


async def test_a_wrong_password_is_reported_without_it(postgres: PostgreSQL, tmp_path: Path) -> None:
    url = f"postgresql://postgres:wrong-canary@127.0.0.1:{postgres.port}/postgres"

    with pytest.raises(StoreError, match="the server refused the user; check the name and the password") as caught:
        open_store(url, tmp_path)

    told = f"{caught.value} {caught.value!r} {caught.value.__cause__}"
    assert f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres" in told
    assert "canary" not in told
    with pytest.raises(ConfigError, match="the URL is not valid") as refused:
        Database("postgresql://postgres:wrong-canary@[::1/x")
    assert "canary" not in f"{refused.value} {refused.value.__cause__}"


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("CONNECTION LIMIT 0", "the server has no free connection; raise max_connections"),
        ("SET default_transaction_read_only = on", "it is read-only: a standby, or default_transaction_read_only"),
        ("SET statement_timeout = 1", None),
    ],
)
async def test_a_server_that_refuses_is_reported_with_advice(
    postgres: PostgreSQL, postgres_url: str, tmp_path: Path, setting: LiteralString, advice: str | None
) -> None:
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    with asking(postgres_url) as db:
        if not db.execute("SELECT 1 FROM pg_roles WHERE rolname = 'limited'").fetchone():
            db.execute("CREATE ROLE limited LOGIN PASSWORD 'limited-canary'")
        db.execute("GRANT ALL ON SCHEMA toolpost TO limited")
        db.execute("GRANT ALL ON ALL TABLES IN SCHEMA toolpost TO limited")
        db.execute("ALTER ROLE limited CONNECTION LIMIT -1")
        db.execute("ALTER ROLE limited RESET ALL")
        db.execute(SQL("ALTER ROLE limited {}").format(SQL(setting)))
    url = f"postgresql://limited:limited-canary@127.0.0.1:{postgres.port}/{name}"
    if advice is None:  # the settings of a session are ours
        await open_store(url, tmp_path).close()
        return

    with pytest.raises(StoreError) as caught:
        open_store(url, tmp_path)

    assert advice in str(caught.value)
    assert "canary" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


async def test_a_missing_database_is_reported(postgres: PostgreSQL, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no such database; create it"):
        open_store(postgres.url(database="nowhere"), tmp_path)
    with pytest.raises(StoreError, match="it cannot be reached; check the address"):
        open_store("postgresql://ann@127.0.0.1:1/x?connect_timeout=2", tmp_path)
