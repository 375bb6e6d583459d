"""Authenticate rows that grant rights: keys of callers, journal entries and outcomes of idempotency keys.

A caller's key has a MAC over its columns. Journal entries and outcomes are encrypted with all that identifies their row
as associated data, so they cannot be moved to another call, tool or user. `verify` reports rows that do not match.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from toolpost.contracts.callers import CALLER_KEY_RUN
from toolpost.contracts.events import EventCode
from toolpost.stores.caller_key_rows import COLUMNS, describe_problem
from toolpost.stores.chain import LogKey
from toolpost.stores.encrypted_columns import CALL_RECORDS, EncryptedColumn
from toolpost.stores.encryption import RowCipher

_OF_TENANT = " AND (:tenant IS NULL OR tenant = :tenant)"
_CALLER_KEYS = f"SELECT {COLUMNS}, mac FROM caller_keys WHERE 1{_OF_TENANT} ORDER BY created_at, id"  # noqa: S608 - constants, here and below

_KEY_EVENTS = "SELECT events FROM segments JOIN runs ON runs.nr = segments.run WHERE runs.run_id = ?"


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
            problem = describe_problem(key, row, revoked)
            if problem is not None:
                yield problem


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
    cell = column.column
    one_run = " AND run_id = :run_id" if values["run_id"] is not None else ""
    sql = f"SELECT {cell}, call_id, {column.names} FROM {column.table} WHERE {cell} IS NOT NULL{_OF_TENANT}{one_run}"  # noqa: S608
    for body, call_id, *named in db.execute(sql, values):
        if not column.opens(cipher, body, tuple(named)):
            yield column.describe_change(call_id, tuple(named))
