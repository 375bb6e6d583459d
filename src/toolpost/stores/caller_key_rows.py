"""Rows of callers' keys in any table, with a MAC over their columns.

A row with an invalid MAC was written without the key of the log: it is logged and treated as missing.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Container
from functools import lru_cache
from typing import Any, TypeAlias

from toolpost.contracts.callers import SCOPES, CallerKey
from toolpost.contracts.principal import Principal
from toolpost.stores.chain import LogKey

Row: TypeAlias = tuple[Any, ...]
COLUMNS = 'id, name, tenant, "user", scopes, digest, created_at, created_by, expires_at, interactive, person'
_log = logging.getLogger("toolpost.stores")


def key_to_row(log_key: LogKey, key: CallerKey) -> Row:
    """Return the `COLUMNS` of a key and their MAC, of the types that a database returns.

    The MAC must not depend on the types that were passed.
    """
    scopes = " ".join(scope for scope in SCOPES if scope in key.scopes)
    expires_at = None if key.expires_at is None else float(key.expires_at)
    facts = (float(key.created_at), key.created_by, expires_at, int(key.interactive), int(key.person))
    row = (key.id, key.name, *key.principal, scopes, key.digest, *facts)
    return (*row, _row_mac(log_key, row))


def key_from_row(log_key: LogKey, row: Row) -> CallerKey | None:
    """Return the key of a row; None if its MAC is invalid."""
    if is_authentic(log_key, row):
        return _key(row)
    _report_once(str(row[0]), str(row[2]))
    return None


def is_authentic(log_key: LogKey, row: Row) -> bool:
    """Return whether the MAC at the end of a row matches the columns before it."""
    *columns, mac = row
    return isinstance(mac, bytes) and hmac.compare_digest(mac, _row_mac(log_key, tuple(columns)))


def describe_problem(log_key: LogKey, row: Row, revoked: Container[str]) -> str | None:
    """Return why a row is not a valid key, given the IDs of revoked keys; None if it is one."""
    name = f"key {row[0]!r} of {row[2]}:{row[3]}"
    if not is_authentic(log_key, row):
        return f"{name} was changed, or was not created by toolpost; it is refused"
    if row[0] in revoked:
        return f"{name} was revoked, and its row was put back: it is valid; revoke it again"
    return None


def _row_mac(log_key: LogKey, row: Row) -> bytes:
    return log_key.mac_fields("caller key", row)


@lru_cache(maxsize=1000)  # a client may send the key often
def _report_once(key_id: str, tenant: str) -> None:
    _log.error(
        "key %r of the tenant %r was changed or added outside of toolpost and is refused; "
        "`toolpost runs verify` lists all such rows, `toolpost keys revoke` removes the key",
        key_id,
        tenant,
    )


def _key(row: Row) -> CallerKey:
    key_id, name, tenant, user, scopes, digest, created_at, created_by, expires_at, interactive, person, _ = row
    granted = scopes.split()
    return CallerKey(
        id=key_id,
        name=name,
        principal=Principal(tenant, user),
        scopes=frozenset(scope for scope in SCOPES if scope in granted),
        digest=bytes(digest),
        created_at=created_at,
        created_by=created_by,
        expires_at=expires_at,
        interactive=bool(interactive),
        person=bool(person),
    )
