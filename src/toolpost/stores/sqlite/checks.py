"""Checks of an SQLite database that change nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Cipher
from toolpost.contracts.store_status import StoreInspection
from toolpost.stores.encryption import RowCipher
from toolpost.stores.ledger import read_log_key
from toolpost.stores.registry import StoreCheck
from toolpost.stores.sql.status import read_status
from toolpost.stores.sqlite.database import DATABASE, MIGRATIONS, OWNERS, open_readable, read_version, store_error
from toolpost.stores.sqlite.key_check import check_key
from toolpost.stores.sqlite.liveness import list_owners
from toolpost.stores.sqlite.shared_statements import SQLiteStatements
from toolpost.stores.sqlite.transfer import refuse_moved
from toolpost.stores.transfer import refuse_missing

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


def check_folder(folder: Path, make_cipher: Callable[[Path], Cipher]) -> Iterator[StoreCheck]:
    """Check the version and the key of a database, and count the processes that use it."""
    path = folder / DATABASE
    if not path.exists():
        yield StoreCheck("ok", "not made yet")
        return
    try:
        with closing(open_readable(path, busy_s=1.0)) as db:
            version = _check_version(db, path)
            yield version
            if version.status == "broken":
                return
            refuse_moved(db, path)
            refuse_missing({name for (name,) in db.execute(_TABLES)}, read_version(db), str(path))
            check_key(db, make_cipher(folder), path)
    except (sqlite3.Error, StoreError) as error:
        message = error.message if isinstance(error, StoreError) else f"{path}: {error}"
        yield StoreCheck("broken", message)
        return
    living = len(list_owners(folder / OWNERS))
    if living:
        yield StoreCheck("ok", "1 process uses it" if living == 1 else f"{living} processes use it")


def inspect_folder(
    folder: Path, make_cipher: Callable[[Path], Cipher], clock: Clock = SYSTEM_CLOCK
) -> StoreInspection | None:
    """Read the status of a database; None if it is not made yet, StoreError if it cannot be read."""
    path = folder / DATABASE
    if not path.exists():
        return None
    try:
        with closing(open_readable(path, busy_s=1.0)) as db:
            version = _check_version(db, path)
            if version.status == "broken":
                raise StoreError(f"database {str(path)!r} has {version.text}")
            refuse_moved(db, path)
            (encrypted,) = db.execute("SELECT key FROM ledger").fetchone() or (b"",)
            key = read_log_key(encrypted, RowCipher(make_cipher(folder)))
            if key is None:
                return None
            owners = list_owners(folder / OWNERS)
            status = read_status(SQLiteStatements(db), owners, at=clock.wall(), schema=read_version(db))
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    return StoreInspection(status, key.mac)


def _check_version(db: sqlite3.Connection, path: Path) -> StoreCheck:
    version, newest = read_version(db), len(list(MIGRATIONS.glob("*.sql")))
    if version > newest:
        return StoreCheck("broken", f"version {version}, newer than this toolpost knows ({newest}); upgrade it")
    return StoreCheck("ok", f"version {version} of {newest}, {path.stat().st_size // 1024} KB")
