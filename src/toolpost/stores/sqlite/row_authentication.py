"""Authenticate rows that grant rights: keys of callers, journal entries and outcomes of idempotency keys.

A caller's key has a MAC over its columns. Journal entries and outcomes are encrypted with all that identifies their row
as associated data, so they cannot be moved to another call, tool or user. `verify` reports rows that do not match.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from toolpost.contracts.callers import CALLER_KEY_RUN
from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import EventCode
from toolpost.stores.chain import LogKey
from toolpost.stores.encryption import UNREADABLE, RowCipher
from toolpost.stores.sqlite.caller_keys import COLUMNS, is_authentic

_OF_TENANT = " AND (:tenant IS NULL OR tenant = :tenant)"
_CALLER_KEYS = f"SELECT {COLUMNS}, mac FROM caller_keys WHERE 1{_OF_TENANT} ORDER BY created_at, id"  # noqa: S608 - constants, here and below

_KEY_EVENTS = "SELECT events FROM segments JOIN runs ON runs.nr = segments.run WHERE runs.run_id = ?"


class EncryptedColumn(NamedTuple):
    """An encrypted column, and the columns that name its row; `suffix` ends the name."""

    table: str
    column: str
    named_by: tuple[str, ...]
    suffix: tuple[str, ...]


_INTENT = ("tenant", "user", "call_id", "step", "run_id", "tool_name")
CALL_RECORDS = (
    EncryptedColumn("journal", "call", _INTENT, ("call",)),
    EncryptedColumn("journal", "result", _INTENT, ("result",)),
    EncryptedColumn(
        "keys", "outcome", ("tenant", "user", "key", "call_id", "tool_name", "arguments_hash"), ("outcome",)
    ),
)


def find_changed_rows(
    db: sqlite3.Connection, key: LogKey, cipher: RowCipher, *, tenant: str | None, run_id: str | None = None
) -> Iterator[str]:
    """Report rows that were changed or added without the key; with a run, only its journal entries."""
    values = {"tenant": tenant, "run_id": run_id}
    for column in CALL_RECORDS:
        if run_id is None or "run_id" in column.named_by:
            yield from _changed_records(db, cipher, column, values)
    if run_id is None:
        revoked = _revoked_keys(db)
        for row in db.execute(_CALLER_KEYS, values):
            name = f"key {row[0]!r} of {row[2]}:{row[3]}"
            if not is_authentic(key, row):
                yield f"{name} was changed, or was not created by toolpost; it is refused"
            elif row[0] in revoked:
                yield f"{name} was revoked, and its row was put back: it is valid; revoke it again"


def _revoked_keys(db: sqlite3.Connection) -> set[str]:
    """Return the IDs of revoked keys, as far as the log still contains their events."""
    found = set[str]()
    for (events,) in db.execute(_KEY_EVENTS, (CALLER_KEY_RUN,)):
        try:
            entries = json.loads(events)
            found |= {facts["key_id"] for code, _, facts in entries if code == EventCode.CALLER_KEY_REVOKED}
        except (ValueError, TypeError, KeyError):  # damaged, which the check of its run reports
            continue
    return found


def _changed_records(
    db: sqlite3.Connection, cipher: RowCipher, column: EncryptedColumn, values: dict[str, Any]
) -> Iterator[str]:
    table, cell = column.table, column.column
    one_run = " AND run_id = :run_id" if values["run_id"] is not None else ""
    names = ", ".join(column.named_by)
    sql = f"SELECT {cell}, call_id, {names} FROM {table} WHERE {cell} IS NOT NULL{_OF_TENANT}{one_run}"  # noqa: S608
    for body, call_id, *named in db.execute(sql, values):
        if not _opens(cipher, body, table, *map(str, named), *column.suffix):
            what = "the outcome under an idempotency key" if table == "keys" else f"the {cell} in the journal"
            yield f"{what} of call {call_id!r} of {named[0]}:{named[1]} was changed or moved; it is not used"


def _opens(cipher: RowCipher, body: Any, *row: str) -> bool:
    try:
        cipher.decrypt(body, *row)
    except (StoreError, TypeError, ValueError):  # SQLite stores values of any type in any column
        return False
    return True


def decrypt_record(cipher: RowCipher, encrypted: bytes, *row: str) -> Any:
    """Decrypt a record of a call; raise StoreError for one that was changed."""
    try:
        return cipher.decrypt(encrypted, *row)
    except StoreError as error:
        if error.error_code != UNREADABLE:
            raise
        # Without the path of the key, because the caller reads this message.
        msg = (
            f"encrypted data of {row[0]!r} cannot be decrypted: it was changed outside of toolpost, or its key is gone"
        )
        advice = "it is not used; `toolpost runs verify` lists such rows"
        raise StoreError(f"{msg}; {advice}", code=UNREADABLE, cause=error) from error
