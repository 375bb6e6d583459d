"""Copies of a whole SQLite database: read it at one moment, or fill a new one."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Cipher
from toolpost.stores.chain import LogKey
from toolpost.stores.durable_files import make_private_folder, sync_folder
from toolpost.stores.ledger import Ledger
from toolpost.stores.sqlite.database import (
    DATABASE,
    MIGRATIONS,
    OWNERS,
    migrate,
    open_readable,
    open_writable,
    read_version,
    store_error,
)
from toolpost.stores.sqlite.event_appender import load_ledger, save_ledger
from toolpost.stores.sqlite.key_check import check_key
from toolpost.stores.sqlite.liveness import list_owners
from toolpost.stores.sqlite.shared_statements import SQLiteStatements
from toolpost.stores.transfer import (
    BATCH,
    COPIED,
    RENUMBERED,
    LogState,
    Migration,
    open_log,
    refuse_rows,
    refuse_users,
    refuse_version,
    rows_of_users,
    tables_of,
)

_FILLING = "toolpost.db.filling"
_BUSY_S = 5.0


class SQLiteSnapshot:
    """A connection in a transaction that reads."""

    def __init__(self, db: sqlite3.Connection, cipher: Cipher, path: Path) -> None:
        self.schema = read_version(db)
        self._db = db
        self.log = self._read_log(cipher, path)

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table that are copied."""
        names = [name for _, name, *_ in self._db.execute(f"PRAGMA table_info({table})")]
        return [name for name in names if table not in RENUMBERED or name != "nr"]

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        return _count(self._db, table)

    def rows(self, table: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the rows of a table in batches."""
        columns = ", ".join(f'"{name}"' for name in self.columns(table))
        found = self._db.execute(f"SELECT {columns} FROM {table} ORDER BY {COPIED[table]}")  # noqa: S608 - constants
        while batch := found.fetchmany(BATCH):
            yield batch

    def _read_log(self, cipher: Cipher, path: Path) -> LogState:
        (key,) = self._db.execute("SELECT key FROM ledger").fetchone() or (b"",)
        ledger = Ledger(open_log(key, cipher, str(path)))
        load_ledger(self._db, ledger)
        return LogState.of(key, ledger)


class LockedSQLite(SQLiteSnapshot):
    """A connection in a transaction that keeps all others from writing."""

    def freeze(self, place: str) -> None:
        """Refuse every further use: processes that open the database learn where the data is, and others cannot write.

        A process that waits for the lock would otherwise write calls that the new database never sees.
        """
        self._db.execute("CREATE TABLE moved (place TEXT NOT NULL, at REAL NOT NULL)")
        self._db.execute("INSERT INTO moved VALUES (?, ?)", (place, time.time()))
        for table in tables_of(self.schema):
            for change in ("INSERT", "UPDATE", "DELETE"):
                name = f"moved_{table}_{change}".lower()
                refusal = "SELECT RAISE(ABORT, 'the data of this database was moved')"
                self._db.execute(f"CREATE TRIGGER {name} BEFORE {change} ON {table} BEGIN {refusal}; END")


class EmptySQLite:
    """A new database in a transaction that fills it."""

    def __init__(self, db: sqlite3.Connection, cipher: Cipher, path: Path) -> None:
        self.statements = SQLiteStatements(db)
        self._db = db
        self._cipher = cipher
        self._path = path

    def insert(self, table: str, columns: Sequence[str], batches: Iterable[Sequence[tuple[Any, ...]]]) -> int:
        """Insert rows; return their number."""
        self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - constants, here and below
        names = ", ".join(f'"{name}"' for name in columns)
        sql = f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
        return sum(self._db.executemany(sql, batch).rowcount for batch in batches)

    def write_log(self, log: LogState, *, position: int) -> LogKey:
        """Write the ledger; events that are written later get positions above `position`. Return the key of the log."""
        key = open_log(log.key, self._cipher, str(self._path))
        ledger = Ledger(key)
        ledger.last_event, ledger.last_run = max(log.last_event, position), log.last_run
        log.fill(ledger)
        self._db.execute("UPDATE ledger SET key = ?", (log.key,))
        save_ledger(self._db, ledger)
        return key


def migrate_folder(folder: Path) -> Migration:
    """Apply the missing migrations to the database of a folder, which is created if it is missing."""
    path = folder / DATABASE
    before = 0
    with _explained(path):
        if path.exists():
            with closing(open_readable(path, busy_s=_BUSY_S)) as db:
                _check_version(db, path)
                before = read_version(db)
        with closing(open_writable(path, busy_s=_BUSY_S)) as db:
            return Migration(before, read_version(db))


@contextmanager
def snapshot(folder: Path, cipher: Cipher) -> Generator[SQLiteSnapshot]:
    """Read the data of a folder at one moment, which other processes may use."""
    path = _existing(folder)
    with _explained(path), closing(open_readable(path, busy_s=_BUSY_S)) as db:
        _check_version(db, path)
        db.execute("BEGIN")
        check_key(db, cipher, path)
        yield SQLiteSnapshot(db, cipher, path)


@contextmanager
def lock(folder: Path, cipher: Cipher) -> Generator[LockedSQLite]:
    """Read the data of a folder that no process uses, and keep all from writing until the context ends."""
    path = _existing(folder)
    _refuse_users(folder, path)
    with _explained(path), closing(open_writable(path, busy_s=_BUSY_S)) as db:
        db.execute("BEGIN IMMEDIATE")
        _refuse_users(folder, path)
        check_key(db, cipher, path)
        yield LockedSQLite(db, cipher, path)
        db.execute("COMMIT")


@contextmanager
def fill(folder: Path, cipher: Cipher, *, schema: int) -> Generator[EmptySQLite]:
    """Fill a new database beside the one of the folder, which it replaces once it is complete."""
    path, filling = folder / DATABASE, folder / _FILLING
    make_private_folder(folder)
    _refuse_users(folder, path)
    _refuse_data(path)
    _refuse_version(schema, path)
    remove(filling)
    try:
        with _explained(path), closing(open_writable(filling, busy_s=_BUSY_S, upto=schema)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield EmptySQLite(db, cipher, path)
            db.execute("COMMIT")
            migrate(db, path)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        remove(path)
        filling.replace(path)
        sync_folder(folder)
    finally:
        remove(filling)


def remove(path: Path) -> None:
    """Delete a database and its side files."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def refuse_moved(db: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError if the data of a database was moved elsewhere."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'moved'").fetchone() is None:
        return
    (place,) = db.execute("SELECT place FROM moved").fetchone()
    raise StoreError(
        f"the data of {str(path)!r} was moved to {place}; set `database` to that address. "
        "Delete the file when you no longer need it",
        code="database_moved",
    )


def _existing(folder: Path) -> Path:
    path = folder / DATABASE
    if not path.exists():
        raise StoreError(f"there is no database at {str(path)!r}; check data_dir")
    return path


def _refuse_users(folder: Path, path: Path) -> None:
    refuse_users(len(list_owners(folder / OWNERS)), str(path), "on the folder")


def _refuse_data(path: Path) -> None:
    """Raise StoreError with NOT_EMPTY if a database has rows."""
    if not path.exists():
        return
    with _explained(path), closing(open_readable(path, busy_s=_BUSY_S)) as db:
        version = read_version(db)
        if not version:
            return
        refuse_moved(db, path)
        counts = {table: _count(db, table) for table in rows_of_users(version)}
    advice = f"Name another data_dir, or move this file away: mv {quote(str(path))} {quote(str(path))}.old"
    refuse_rows(counts, str(path), advice)


def _count(db: sqlite3.Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608


def _check_version(db: sqlite3.Connection, path: Path) -> None:
    refuse_moved(db, path)
    _refuse_version(read_version(db), path)


def _refuse_version(version: int, path: Path) -> None:
    refuse_version(version, len(list(MIGRATIONS.glob("*.sql"))), str(path))


@contextmanager
def _explained(path: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error, path) from error
