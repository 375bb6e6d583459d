"""The check that the key of a PostgreSQL store is present when the store opens."""

from __future__ import annotations

from toolpost.contracts.storage import Cipher
from toolpost.stores.encrypted_columns import CHECKED, KEY_PREFIX, check_prefixes
from toolpost.stores.postgres.database import Connection, constant


def check_key(db: Connection, cipher: Cipher, place: str) -> None:
    """Raise StoreError if the key of the values is missing."""
    found = {table: _some_prefixes(db, table, column) for table, column in CHECKED}
    check_prefixes(found, cipher, f"the data at {place!r}")


def _some_prefixes(db: Connection, table: str, column: str) -> list[bytes]:
    sql = f"SELECT substr({column}, 1, {KEY_PREFIX}) FROM {table} WHERE length({column}) > 0 LIMIT 50"  # noqa: S608 - constants
    return [prefix for (prefix,) in db.execute(constant(sql))]
