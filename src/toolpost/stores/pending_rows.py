"""Rows of pending actions in any table: encrypted bodies, and a MAC over the columns of the status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction
from toolpost.stores.chain import LogKey
from toolpost.stores.encryption import UNREADABLE, RowCipher, readable_rows
from toolpost.stores.records import action_from_data, action_to_data, answer_to_data

Row: TypeAlias = tuple[Any, ...]
STATUS_COLUMNS = 'id, call_id, run_id, tenant, "user", status, created_at, expires_at, answered_by, answered_at'
COLUMNS = 'id, tenant, "user", status, action, answer, answered_by, answered_at, outcome, owner'


class PendingRows:
    """Encrypts pending actions for the row that they are in, and reads and authenticates rows."""

    def __init__(self, cipher: RowCipher, key: LogKey) -> None:
        self._cipher = cipher
        self._key = key

    def encrypt_action(self, action: PendingAction) -> bytes:
        """Encrypt the constant part of an action."""
        return self._cipher.encrypt(action_to_data(action), "pending", *action.asked_by, action.id, "action")

    def encrypt_answer(self, answer: Answer, pending_id: str, asked_by: Principal) -> bytes:
        """Encrypt the answer to an action."""
        return self._cipher.encrypt(answer_to_data(answer), "pending", *asked_by, pending_id, "answer")

    def encrypt_outcome(self, outcome: Mapping[str, Any], pending_id: str, asked_by: Principal) -> bytes:
        """Encrypt the outcome of an action."""
        return self._cipher.encrypt(dict(outcome), "pending", *asked_by, pending_id, "outcome")

    def call_mac(self, same_call: str) -> bytes | None:
        """Return the value of `same_call`: from a plain hash, a reader of the database could guess short arguments."""
        return self._key.mac("same call", same_call.encode()) if same_call else None

    def action(self, row: Row) -> PendingAction:
        """Build the action of a row of `COLUMNS`."""
        id_, tenant, user, status, action, answer, answered_by, answered_at, outcome, owner = row
        name = ("pending", tenant, user, id_)
        return replace(
            action_from_data(self._cipher.decrypt(action, *name, "action")),
            status=status,
            answer=None if answer is None else Answer(**self._cipher.decrypt(answer, *name, "answer")),
            answered_by=answered_by,
            answered_at=answered_at,
            outcome=None if outcome is None else self._cipher.decrypt(outcome, *name, "outcome"),
            owner=owner or "",
        )

    def actions(self, rows: Iterable[Row]) -> list[PendingAction]:
        """Build the actions of rows; log and skip those that cannot be decrypted."""
        return readable_rows(rows, self.action, lambda row: f"question {row[0]!r}")

    def status_mac(self, status: Iterable[object]) -> bytes:
        """Return the MAC over the `STATUS_COLUMNS` of an action."""
        return status_mac(self._key, status)

    def is_sound(self, row: Row, *, strict: bool) -> bool:
        """Return whether a row of `STATUS_COLUMNS` and its MAC match; with `strict` raise StoreError if not."""
        *status, mac = row
        if mac == self.status_mac(status):
            return True
        if strict:
            msg = f"question {row[0]!r} was changed outside of toolpost and cannot be answered; call the tool again"
            raise StoreError(msg, code=UNREADABLE)
        return False


def status_mac(key: LogKey, status: Iterable[object]) -> bytes:
    """Return the MAC over the `STATUS_COLUMNS` of a pending action."""
    return key.mac_fields("pending", status)


def first_status(action: PendingAction) -> Row:
    """Return the `STATUS_COLUMNS` of a new action."""
    row = (action.id, action.call_id, action.run_id, *action.asked_by, action.status)
    return (*row, float(action.created_at), float(action.expires_at), None, None)
