"""The check that the key of the values in an SQLite database is present."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from toolpost.contracts.storage import Cipher
from toolpost.stores.encrypted_columns import CHECKED, KEY_PREFIX, check_prefixes


def check_key(db: sqlite3.Connection, cipher: Cipher, path: Path) -> None:
    """Raise StoreError if the key of the values is missing."""
    found = {table: _newest_prefixes(db, table, column) for table, column in CHECKED}
    check_prefixes(found, cipher, f"the data at {str(path)!r}")


def _newest_prefixes(db: sqlite3.Connection, table: str, column: str) -> list[bytes]:
    sql = f"SELECT substr(CAST({column} AS BLOB), 1, {KEY_PREFIX}) FROM {table} ORDER BY rowid DESC LIMIT 50"  # noqa: S608 - constants
    return [prefix for (prefix,) in db.execute(sql) if prefix]  # a new ledger has no key yet
