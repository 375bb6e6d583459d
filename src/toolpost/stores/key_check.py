"""Whether the key at hand is the one that a folder's data was sealed with; one damaged row says nothing about that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.errors import StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

    from toolpost.contracts.storage import Sealer

_BEGINNING = 16  # so much of what is sealed tells its key
_SEALED = (("pending", "action"), ("journal", "call"), ("tokens", "body"), ("state", "body"), ("ledger", "key"))


def check_key(db: sqlite3.Connection, sealer: Sealer, path: Path) -> None:
    """StoreError when all that was sealed lately was sealed with keys that are not here."""
    knows: Callable[[bytes], bool] | None = getattr(sealer, "knows", None)
    if knows is None:
        return
    beginnings = {bytes(found) for table, column in _SEALED for found in _lately(db, table, column)}
    if beginnings and not any(map(knows, beginnings)):
        msg = f"the data at {str(path)!r} does not open: another key sealed it"
        raise StoreError(f"{msg}; put that key back, or begin with an empty folder")


def _lately(db: sqlite3.Connection, table: str, column: str) -> list[bytes]:
    sql = f"SELECT substr(CAST({column} AS BLOB), 1, {_BEGINNING}) FROM {table} ORDER BY rowid DESC LIMIT 50"  # noqa: S608 - constants
    return [found for (found,) in db.execute(sql)]
