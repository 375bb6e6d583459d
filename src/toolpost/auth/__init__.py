"""Who calls, and what is presented to the other side: credentials, sign-in, accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.lazy import lazy_attributes

if TYPE_CHECKING:
    from toolpost.auth.consents import SealedSignIns
    from toolpost.auth.oauth_manager import (
        InMemoryTokenStore,
        OAuthCallbackError,
        OAuthManager,
        OAuthProviderConfig,
        VaultTokenStore,
    )
    from toolpost.auth.user_credentials import AuthManager, ManagedCredentials
    from toolpost.contracts.calls import AuthorizedCall, Credential, PermittedCall
    from toolpost.contracts.source_kinds import AuthType
    from toolpost.contracts.sources import CredentialProvider, RenewingProvider
    from toolpost.contracts.storage import TokenStore

__getattr__ = lazy_attributes(
    "toolpost.auth",
    {
        "auth.consents": ["SealedSignIns"],
        "auth.oauth_manager": [
            "InMemoryTokenStore",
            "OAuthCallbackError",
            "OAuthManager",
            "OAuthProviderConfig",
            "VaultTokenStore",
        ],
        "auth.user_credentials": ["AuthManager", "ManagedCredentials"],
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
    "InMemoryTokenStore",
    "ManagedCredentials",
    "OAuthCallbackError",
    "OAuthManager",
    "OAuthProviderConfig",
    "PermittedCall",
    "RenewingProvider",
    "SealedSignIns",
    "TokenStore",
    "VaultTokenStore",
]


def __dir__() -> list[str]:
    return [*__all__]
