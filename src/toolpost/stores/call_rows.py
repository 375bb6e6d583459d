"""Rows of the journal, of idempotency keys and of cancel requests in any table, with encrypted values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import CancelRequest, IdempotencyRecord, JournalEntry
from toolpost.stores.encrypted_columns import decrypt_record
from toolpost.stores.encryption import RowCipher, readable_rows

JOURNAL = 'call_id, step, run_id, tool_name, tenant, "user", at, owner, call, result'
KEY = "call_id, tool_name, arguments_hash, outcome, owner"


def read_entry(cipher: RowCipher, row: Sequence[Any]) -> JournalEntry:
    """Build the entry of a row of `JOURNAL`; StoreError if its values were changed or moved."""
    call_id, step, run_id, tool_name, tenant, user, at, owner, call, result = row
    name = ("journal", tenant, user, call_id, step, run_id, tool_name)
    return JournalEntry(
        call_id=call_id,
        step=step,
        run_id=run_id,
        tool_name=tool_name,
        principal=Principal(tenant, user),
        call=decrypt_record(cipher, call, *name, "call"),
        at=at,
        owner=owner,
        done=result is not None,
        result=None if result is None else decrypt_record(cipher, result, *name, "result"),
    )


def read_entries(cipher: RowCipher, rows: Iterable[Sequence[Any]]) -> list[JournalEntry]:
    """Build the entries of rows; log and skip those that cannot be decrypted."""
    return readable_rows(rows, lambda row: read_entry(cipher, row), lambda row: f"the intent of call {row[0]!r}")


def read_key(
    cipher: RowCipher, principal: Principal, key: str, row: Sequence[Any], *, is_alive: bool
) -> IdempotencyRecord:
    """Build the record of a user's idempotency key from a row of `KEY`; StoreError as for `read_entry`."""
    call_id, tool_name, arguments_hash, outcome, _ = row
    name = ("keys", *principal, key, call_id, tool_name, arguments_hash, "outcome")
    return IdempotencyRecord(
        call_id=call_id,
        tool_name=tool_name,
        arguments_hash=arguments_hash,
        outcome=None if outcome is None else decrypt_record(cipher, outcome, *name),
        owner_alive=is_alive,
    )


def read_cancels(rows: Iterable[Sequence[Any]]) -> dict[str, list[CancelRequest]]:
    """Return the requests by their targets, from rows of target, time and tenant."""
    requests: dict[str, list[CancelRequest]] = {}
    for target_id, at, tenant in rows:
        requests.setdefault(target_id, []).append(CancelRequest(at, tenant or None))
    return requests
