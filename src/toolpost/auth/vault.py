"""The vault: the tokens of connected accounts, opened for the one they belong to and told to nobody."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from toolpost.auth.seal import UNREADABLE
from toolpost.contracts.errors import StoreError
from toolpost.contracts.passing import passing
from toolpost.contracts.principal import Principal
from toolpost.contracts.tokens import TokenKey, TokenRow, TokenStatus

if TYPE_CHECKING:
    from toolpost.auth.secret import Secret
    from toolpost.contracts.tokens import TokenRows

_LEARN_AGAIN_S = 1800.0

_log = logging.getLogger("toolpost.auth")


class Tokens(Protocol):
    """What the vault needs to know of what it keeps."""

    @property
    def expires_at(self) -> float | None:
        """When they end, if that is known."""
        ...

    @property
    def refresh_token(self) -> Secret | None:
        """What renews them, if anything does."""
        ...

    @property
    def secrets(self) -> set[str]:
        """All of it that must not be told."""
        ...

    def is_fresh(self, now: float) -> bool:
        """Whether they will be good for a while yet."""
        ...


T = TypeVar("T", bound=Tokens)
Learn = Callable[[set[str]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account(Generic[T]):
    """A connected account: whose it is, how it stands, and its tokens (None once they were revoked)."""

    key: TokenKey
    version: int
    status: TokenStatus
    tokens: T | None
    changed_at: float


class Vault(Generic[T]):
    """Keeps tokens by tenant, user, issuer, resource and client.

    `pack` and `unpack` turn tokens into JSON and back. `learn` is given every secret
    that passes, and those that are still in use again and again, so that whoever redacts
    knows them. A row older than one that was seen before was put back by someone and is
    not served.
    """

    def __init__(
        self,
        rows: TokenRows,
        *,
        pack: Callable[[T], bytes],
        unpack: Callable[[bytes], T],
        learn: Learn | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.rows = rows
        self.clock = clock
        self._pack = pack
        self._unpack = unpack
        self._learn = learn
        self._newest: dict[TokenKey, int] = {}
        self._told: dict[TokenKey, tuple[int, float]] = {}
        self._damaged: set[TokenKey] = set()

    async def find(self, key: TokenKey) -> Account[T] | None:
        """An account; StoreError when its row was moved here or changed."""
        row = await self.rows.get(key)
        return self.opened(row) if row else None

    async def standing(self, key: TokenKey) -> Account[T] | None:
        """An account in whatever state: one whose row was moved here or changed is doubtful and has no tokens."""
        try:
            return await self.find(key)
        except StoreError as error:
            if error.error_code != UNREADABLE:  # the store itself may be back in a moment
                raise
            if key not in self._damaged:  # it is looked at again and again
                self._damaged.add(key)
                _log.warning("the account of %s:%s at %r cannot be read: %s", key.tenant, key.user, key.issuer, error)
            return Account(key=key, version=0, status="doubtful", tokens=None, changed_at=0.0)

    async def accounts(self, *, tenant: str | None = None, user: str | None = None) -> list[Account[T]]:
        """The accounts of a person, a tenant or all."""
        return [self.opened(row) for row in await self.rows.list(tenant=tenant, user=user)]

    async def keep(self, key: TokenKey, tokens: T) -> Account[T]:
        """Keep the tokens of a new consent, whatever was there before."""
        row = await self.rows.put(key, self.body(tokens))
        self._newest.pop(key, None)  # What is kept now counts, even if the clock was set back.
        return self.opened(row)

    async def exchange(self, account: Account[T], tokens: T) -> Account[T] | None:
        """Keep other tokens in place of these; None when they are no longer the ones that are kept."""
        row = await self.rows.swap(account.key, account.version, self.body(tokens))
        return self.opened(row) if row else None

    async def remove(self, account: Account[T]) -> bool:
        """Forget an account; False when it has changed since it was read."""
        return await self.rows.remove(account.key, version=account.version)

    def body(self, tokens: T) -> dict[str, Any]:
        """Tokens as rows hold them."""
        body: dict[str, Any] = json.loads(self._pack(tokens))
        return body

    def opened(self, row: TokenRow) -> Account[T]:
        """The account that a row stands for."""
        newest = self._newest[row.key] = max(row.version, self._newest.get(row.key, 0))
        tokens = self._unpack(json.dumps(row.body).encode()) if row.body else None
        if tokens and self._learn:
            self._tell(self._learn, row, tokens)
        status = row.status if row.version == newest else "doubtful"
        return Account(key=row.key, version=row.version, status=status, tokens=tokens, changed_at=row.changed_at)

    def _tell(self, learn: Learn, row: TokenRow, tokens: T) -> None:
        """Let whoever redacts know what passes: each version when it is first seen, and while it is in use."""
        now = self.clock()
        version, since = self._told.get(row.key, (0, 0.0))
        if version != row.version or not since <= now < since + _LEARN_AGAIN_S:
            learn(passing(tokens.secrets, until=tokens.expires_at, now=now))
            self._told[row.key] = (row.version, now)


class VaultTokenStore:
    """Fulfils `TokenStore` with sealed rows: access tokens of users by provider; a user is written `tenant:user`."""

    def __init__(self, rows: TokenRows, *, learn: Learn | None = None, clock: Callable[[], float] = time.time) -> None:
        self._rows = rows
        self._learn = learn
        self._clock = clock

    async def store(self, user_id: str, provider: str, token: str, expires_at: float | None) -> None:
        """Keep a token."""
        self._tell(token, expires_at)
        await self._rows.put(_provider_key(user_id, provider), {"token": token, "expires_at": expires_at})

    async def get(self, user_id: str, provider: str) -> str | None:
        """A valid token; one that expired is forgotten."""
        row = await self._rows.get(_provider_key(user_id, provider))
        if row is None or not row.body:
            return None
        token, expires_at = row.body["token"], row.body["expires_at"]
        if expires_at is not None and expires_at <= self._clock():
            await self._rows.remove(row.key, version=row.version)
            return None
        self._tell(token, expires_at)
        return str(token)

    async def delete(self, user_id: str, provider: str) -> None:
        """Forget a token."""
        await self._rows.remove(_provider_key(user_id, provider))

    def _tell(self, token: str, expires_at: float | None) -> None:
        if self._learn:
            self._learn(passing({token}, until=expires_at, now=self._clock()))


def _provider_key(user_id: str, provider: str) -> TokenKey:
    return TokenKey(*Principal.parse(user_id), f"provider:{provider}", "", "")
