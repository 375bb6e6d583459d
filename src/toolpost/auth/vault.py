"""Token vault: the token sets of accounts in encrypted rows of the store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from msgspec import Struct

from toolpost.auth.keys import UNREADABLE
from toolpost.auth.oauth.records import pack_record, unpack_record
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.contracts.errors import StoreError
from toolpost.contracts.expiring_secret import expiring
from toolpost.contracts.storage import TokenKey, TokenRow, TokenRows, TokenStatus

_LEARN_AGAIN_S = 1800.0
Learn = Callable[[set[str]], None]
_log = logging.getLogger("toolpost.auth")


class Account(Struct, frozen=True, kw_only=True):
    """A connected account: its key, version, status and tokens (None once they were revoked)."""

    key: TokenKey
    version: int
    status: TokenStatus
    tokens: TokenSet | None
    changed_at: float


class Vault:
    """Store token sets by tenant, user, issuer, resource and client.

    `learn` receives every secret that is read or written, and again while it is in use, for redaction. If a row is
    older than a version seen before, someone restored it: its account is doubtful.
    """

    def __init__(
        self,
        rows: TokenRows,
        *,
        learn: Learn | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.rows = rows
        self.clock = clock
        self._learn = learn
        self._newest: dict[TokenKey, int] = {}
        self._learned: dict[TokenKey, tuple[int, float]] = {}
        self._damaged: set[TokenKey] = set()

    async def find(self, key: TokenKey) -> Account | None:
        """Return an account; raise StoreError if its row was moved or changed."""
        row = await self.rows.get(key)
        return self.opened(row) if row else None

    async def standing(self, key: TokenKey) -> Account | None:
        """Return an account in any status; if its row was moved or changed, it is doubtful and has no tokens."""
        try:
            return await self.find(key)
        except StoreError as error:
            if error.error_code != UNREADABLE:  # an error of the store is temporary
                raise
            if key not in self._damaged:  # log it once
                self._damaged.add(key)
                _log.warning("the account of %s:%s at %r cannot be read: %s", key.tenant, key.user, key.issuer, error)
            return Account(key=key, version=0, status="doubtful", tokens=None, changed_at=0.0)

    async def keep(self, key: TokenKey, tokens: TokenSet) -> Account:
        """Store the tokens of a new consent in place of earlier ones."""
        row = await self.rows.put(key, pack_record(tokens))
        self._newest.pop(key, None)  # valid even if the clock was set back
        return self.opened(row)

    async def remove(self, account: Account) -> bool:
        """Delete an account; return False if it has changed since it was read."""
        return await self.rows.remove(account.key, version=account.version)

    def opened(self, row: TokenRow) -> Account:
        """Return the account of a row."""
        newest = self._newest[row.key] = max(row.version, self._newest.get(row.key, 0))
        tokens = unpack_record(TokenSet, row.body) if row.body else None
        if tokens and self._learn:
            self._learn_secrets(self._learn, row, tokens)
        status = row.status if row.version == newest else "doubtful"
        return Account(key=row.key, version=row.version, status=status, tokens=tokens, changed_at=row.changed_at)

    def _learn_secrets(self, learn: Learn, row: TokenRow, tokens: TokenSet) -> None:
        """Pass secrets to redaction: each version when it is first seen, and again while it is in use."""
        now = self.clock()
        version, since = self._learned.get(row.key, (0, 0.0))
        if version != row.version or not since <= now < since + _LEARN_AGAIN_S:
            learn(expiring(tokens.secrets, until=tokens.expires_at, now=now))
            self._learned[row.key] = (row.version, now)
