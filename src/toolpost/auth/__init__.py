"""Credentials, sign-in and accounts: authentication of callers, and of calls at their servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.lazy import lazy_attributes

if TYPE_CHECKING:
    from toolpost.auth.managed_credentials import AuthManager, ManagedCredentials
    from toolpost.auth.oauth_manager import OAuthCallbackError, OAuthManager, OAuthProviderConfig
    from toolpost.auth.pending_sign_ins import EncryptedSignIns
    from toolpost.auth.token_stores import InMemoryTokenStore, VaultTokenStore
    from toolpost.contracts.calls import AuthorizedCall, Credential, PermittedCall
    from toolpost.contracts.source_kinds import AuthType
    from toolpost.contracts.sources import CredentialProvider, RenewingProvider
    from toolpost.contracts.storage import TokenStore

__getattr__ = lazy_attributes(
    "toolpost.auth",
    {
        "auth.managed_credentials": ["AuthManager", "ManagedCredentials"],
        "auth.oauth_manager": ["OAuthCallbackError", "OAuthManager", "OAuthProviderConfig"],
        "auth.pending_sign_ins": ["EncryptedSignIns"],
        "auth.token_stores": ["InMemoryTokenStore", "VaultTokenStore"],
        "contracts.calls": ["AuthorizedCall", "Credential", "PermittedCall"],
        "contracts.source_kinds": ["AuthType"],
        "contracts.sources": ["CredentialProvider", "RenewingProvider"],
        "contracts.storage": ["TokenStore"],
    },
)

__all__ = [
    "AuthManager",
    "AuthType",
    "AuthorizedCall",
    "Credential",
    "CredentialProvider",
    "EncryptedSignIns",
    "InMemoryTokenStore",
    "ManagedCredentials",
    "OAuthCallbackError",
    "OAuthManager",
    "OAuthProviderConfig",
    "PermittedCall",
    "RenewingProvider",
    "TokenStore",
    "VaultTokenStore",
]


def __dir__() -> list[str]:
    return [*__all__]
