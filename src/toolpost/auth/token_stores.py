"""Token stores of an OAuthManager: in memory, or in the encrypted rows of a store."""

from __future__ import annotations

import time
from collections.abc import Callable

from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.secret import Secret
from toolpost.auth.vault import Learn, Vault
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import TokenKey, TokenRows


class InMemoryTokenStore:
    """Implements `TokenStore` in memory."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tokens: dict[tuple[str, str], tuple[str, float | None]] = {}

    async def store(self, user_id: str, provider: str, token: str, expires_at: float | None) -> None:
        self._tokens[user_id, provider] = (token, expires_at)

    async def get(self, user_id: str, provider: str) -> str | None:
        token, expires_at = self._tokens.get((user_id, provider), (None, None))
        if expires_at is not None and expires_at <= self._clock():
            await self.delete(user_id, provider)
            return None
        return token

    async def delete(self, user_id: str, provider: str) -> None:
        self._tokens.pop((user_id, provider), None)


class VaultTokenStore:
    """Implements `TokenStore` with the encrypted rows of a store; users are written `tenant:user`."""

    def __init__(self, rows: TokenRows, *, learn: Learn | None = None, clock: Callable[[], float] = time.time) -> None:
        self._vault = Vault(rows, learn=learn, clock=clock)

    async def store(self, user_id: str, provider: str, token: str, expires_at: float | None) -> None:
        tokens = TokenSet(access_token=Secret(token), expires_at=expires_at)
        await self._vault.keep(_provider_key(user_id, provider), tokens)

    async def get(self, user_id: str, provider: str) -> str | None:
        account = await self._vault.find(_provider_key(user_id, provider))
        if account is None or account.tokens is None:
            return None
        expires_at = account.tokens.expires_at
        if expires_at is not None and expires_at <= self._vault.clock():
            await self._vault.remove(account)
            return None
        return account.tokens.access_token.reveal()

    async def delete(self, user_id: str, provider: str) -> None:
        await self._vault.rows.remove(_provider_key(user_id, provider))


def _provider_key(user_id: str, provider: str) -> TokenKey:
    return TokenKey(*Principal.parse(user_id), f"provider:{provider}", "", "")
