"""The encrypted columns of a database, and the columns that name the row of each value.

A value is encrypted with all that identifies its row as associated data, so it cannot be moved to another call, tool or
user.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Cipher
from toolpost.stores.encryption import UNREADABLE, RowCipher

_INTENT = ("tenant", "user", "call_id", "step", "run_id", "tool_name")
_PENDING = ("tenant", "user", "id")
_JOBS = ("tenant", "user", "id")
_TOKENS = ("tenant", "user", "issuer", "resource", "client", "version")
PRIMARY_KEYS = {
    "journal": ("call_id", "step"),
    "keys": ("tenant", "user", "key"),
    "pending": ("id",),
    "tokens": ("tenant", "user", "issuer", "resource", "client"),
    "ledger": ("id",),
    "state": ("kind", "key", "item"),
    "jobs": ("id",),
    "schedules": ("tenant", "name"),
}
"""The primary keys of the tables with encrypted columns."""
CHECKED = (("pending", "action"), ("journal", "call"), ("tokens", "body"), ("state", "body"), ("ledger", "key"))
"""Columns with values that show whether the key of a database is available."""
KEY_PREFIX = 16
"""The bytes of an encrypted value that identify its key."""


class EncryptedColumn(NamedTuple):
    """An encrypted column, and the columns that name its row; `suffix` ends the name."""

    table: str
    column: str
    named_by: tuple[str, ...]
    suffix: tuple[str, ...]

    @property
    def names(self) -> str:
        """The columns that name the row, for SQL; `user` is a word of PostgreSQL."""
        return ", ".join(f'"{name}"' for name in self.named_by)

    def opens(self, cipher: RowCipher, body: Any, named: tuple[Any, ...]) -> bool:
        """Return whether a value can be decrypted in the row that it is in."""
        try:
            cipher.decrypt(body, self.table, *map(str, named), *self.suffix)
        except (StoreError, TypeError, ValueError):  # SQLite stores values of any type in any column
            return False
        return True

    def describe_change(self, call_id: str, named: tuple[Any, ...]) -> str:
        """Describe a record of a call that was changed."""
        what = "the outcome under an idempotency key" if self.table == "keys" else f"the {self.column} in the journal"
        return f"{what} of call {call_id!r} of {named[0]}:{named[1]} was changed or moved; it is not used"


CALL_RECORDS = (
    EncryptedColumn("journal", "call", _INTENT, ("call",)),
    EncryptedColumn("journal", "result", _INTENT, ("result",)),
    EncryptedColumn(
        "keys", "outcome", ("tenant", "user", "key", "call_id", "tool_name", "arguments_hash"), ("outcome",)
    ),
)
ENCRYPTED = (
    *CALL_RECORDS,
    EncryptedColumn("pending", "action", _PENDING, ("action",)),
    EncryptedColumn("pending", "answer", _PENDING, ("answer",)),
    EncryptedColumn("pending", "outcome", _PENDING, ("outcome",)),
    EncryptedColumn("tokens", "body", _TOKENS, ("body",)),
    EncryptedColumn("ledger", "key", ("id",), ("key",)),
    EncryptedColumn("state", "body", ("kind", "key", "item"), ()),
    EncryptedColumn("jobs", "body", _JOBS, ("body",)),
    EncryptedColumn("jobs", "outcome", _JOBS, ("outcome",)),
    EncryptedColumn("schedules", "arguments", ("tenant", "user", "name"), ("arguments",)),
)
"""All encrypted columns of a database, except the contents of artifacts."""


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


def check_prefixes(found: Mapping[str, Iterable[bytes]], cipher: Cipher, what: str) -> None:
    """Raise StoreError if the key of the log, or all of the newest values, were encrypted with a key that is missing.

    `found` has prefixes of values by table, those of `CHECKED`. A damaged value is not an error, as is a key of the log
    that is too short. A database without values has any key.
    """
    log_keys = [prefix for prefix in found["ledger"] if len(prefix) == KEY_PREFIX]
    values = {prefix for prefixes in found.values() for prefix in prefixes}
    if values and not any(map(cipher.knows, log_keys or values)):
        raise wrong_key(what, cipher)


def wrong_key(what: str, cipher: Cipher) -> StoreError:
    """Return the error for data whose key is missing."""
    return StoreError(
        f"{what} cannot be decrypted: it was encrypted with another key than {cipher.describe_key()}. "
        "Restore that key, name its place in `accounts.key`, or start with an empty database",
        code="wrong_key",
    )
