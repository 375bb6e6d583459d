"""OAuthManager with a synchronous `get_auth_request`, over Toolpost's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.auth.account_counts import AccountCounts
from toolpost.auth.oauth_manager import OAuthManager as _OAuthManager
from toolpost.auth.oauth_manager import OAuthProviderConfig
from toolpost.auth.pending_sign_ins import MemorySignIns
from toolpost.auth.token_stores import InMemoryTokenStore
from toolpost.contracts.storage import TokenStore

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["InMemoryTokenStore", "OAuthManager", "OAuthProviderConfig", "TokenStore"]


class PenguiflowOAuthManager:
    """Sign-ins of users at OAuth providers, where the callback reaches the process that began the sign-in.

    Where it may reach another, use `toolpost.OAuthManager`, whose `get_auth_request` is awaited and which stores
    sign-ins where all processes find them.
    """

    def __init__(
        self, providers: Mapping[str, OAuthProviderConfig], token_store: TokenStore | None = None, **options: Any
    ) -> None:
        self._sign_ins = MemorySignIns()
        self._manager = _OAuthManager(providers, token_store, pending=self._sign_ins, **options)

    @property
    def providers(self) -> Mapping[str, OAuthProviderConfig]:
        """The providers by name."""
        return self._manager.providers

    @property
    def token_store(self) -> TokenStore:
        """The storage of tokens."""
        return self._manager.token_store

    @property
    def counts(self) -> AccountCounts:
        """Counters of sign-ins, which nodes with this manager share."""
        return self._manager.counts

    @property
    def pending_sign_ins(self) -> int:
        """The number of sign-ins that wait for their callback, including those that expired a short time ago."""
        return len(self._sign_ins)

    def __repr__(self) -> str:
        return repr(self._manager)

    async def get_token(self, user_id: str, provider: str) -> str | None:
        """Return a valid token of a user, or None."""
        return await self._manager.get_token(user_id, provider)

    def get_auth_request(self, provider: str, user_id: str, trace_id: str = "") -> dict[str, Any]:
        """Start a sign-in and return the fields of a pause: `display_name`, `auth_url`, `scopes` and `state`."""
        request, shown = self._manager.begin(provider, user_id, trace_id)
        if (before := self._manager.due_purge()) is not None:
            self._sign_ins.drop_expired(before)
        self._sign_ins.add(request)
        return shown

    async def handle_callback(self, code: str, state: str, **parameters: Any) -> tuple[str, str]:
        """Exchange the code of a callback, store the token and return (user_id, trace_id) to resume with.

        The parameters are those of `toolpost.OAuthManager.handle_callback`; give at least `user_id`, who is signed in.
        """
        return await self._manager.handle_callback(code, state, **parameters)


OAuthManager = PenguiflowOAuthManager  # as penguiflow calls it
