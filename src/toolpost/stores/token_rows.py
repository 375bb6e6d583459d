"""Token rows in any table: bodies encrypted to their key and version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from toolpost.contracts.storage import TokenKey, TokenRow
from toolpost.stores.encryption import ROW_FAULTS, RowCipher, skip_damaged

Row: TypeAlias = tuple[Any, ...]
COLUMNS = 'tenant, "user", issuer, resource, client, version, status, changed_at, body, holder, until'


def encrypt_token(cipher: RowCipher, key: TokenKey, version: int, body: Mapping[str, Any]) -> bytes:
    """Encrypt a body to its key and version."""
    return cipher.encrypt(dict(body), *_row_name(key, version))


def read_token(cipher: RowCipher, row: Row) -> TokenRow:
    """Build the token of a row of `COLUMNS`."""
    key, (version, status, changed_at, body, holder, until) = TokenKey(*row[:5]), row[5:]
    return TokenRow(
        key=key,
        version=version,
        status=status,
        body=cipher.decrypt(body, *_row_name(key, version)),
        changed_at=changed_at,
        holder=holder,
        until=until,
    )


def read_or_doubt(cipher: RowCipher, row: Row) -> TokenRow:
    """Read a row of a list; a row that cannot be decrypted is doubtful and empty, and can be removed."""
    try:
        return read_token(cipher, row)
    except ROW_FAULTS as error:
        key, version, changed_at = TokenKey(*row[:5]), row[5], row[7]
        skip_damaged(f"the row of {key.tenant}:{key.user} at {key.issuer!r}", error)
        return TokenRow(key=key, version=version, status="doubtful", body={}, changed_at=changed_at)


def _row_name(key: TokenKey, version: int) -> tuple[str, ...]:
    """Return the row name that a body is encrypted to."""
    return ("tokens", *key, str(version), "body")
