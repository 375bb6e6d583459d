"""Access tokens of users in memory, for development; `VaultTokenStore` keeps them for good."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from toolpost.contracts.storage import TokenStore

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["InMemoryTokenStore", "TokenStore"]


class InMemoryTokenStore:
    """Fulfils `TokenStore` for as long as the process lives."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tokens: dict[tuple[str, str], tuple[str, float | None]] = {}

    async def store(self, user_id: str, provider: str, token: str, expires_at: float | None) -> None:
        """Keep a token."""
        self._tokens[user_id, provider] = (token, expires_at)

    async def get(self, user_id: str, provider: str) -> str | None:
        """A valid token; one that expired is forgotten."""
        token, expires_at = self._tokens.get((user_id, provider), (None, None))
        if expires_at is not None and expires_at <= self._clock():
            await self.delete(user_id, provider)
            return None
        return token

    async def delete(self, user_id: str, provider: str) -> None:
        """Forget a token."""
        self._tokens.pop((user_id, provider), None)
