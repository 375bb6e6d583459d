"""Finds the credential that a permitted call travels with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.sources import RenewingProvider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.calls import AuthorizedCall, Credential, PermittedCall
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import CredentialProvider

_NOTHING: frozenset[str] = frozenset()


class Authorizer:
    """Knows, by source, the credential that all share, or who provides one for each person.

    Python tools act with the rights of this process, so their calls travel without one.
    """

    def __init__(self, providers: Mapping[str, CredentialProvider] | None = None) -> None:
        self._shared: dict[str, Credential] = {}
        self._secrets: dict[str, frozenset[str]] = {}
        self._providers = dict(providers or {})

    def provide(self, source: str, provider: CredentialProvider) -> None:
        """Let each call of a source travel with its caller's own."""
        self._providers[source] = provider

    def provides(self, source: str) -> bool:
        """Whether somebody lends credentials for a source."""
        return source in self._providers

    def share(self, source: str, credential: Credential) -> None:
        """Let every call of a source travel with this credential."""
        self._shared[source] = credential

    def entrust(self, source: str, secrets: frozenset[str]) -> None:
        """Remember what else a source was given that its other side must not repeat."""
        self._secrets[source] = secrets

    def entrusted(self, source: str) -> frozenset[str]:
        """What a source was given beside credentials."""
        return self._secrets.get(source, _NOTHING)

    async def authorize(self, call: PermittedCall) -> Credential | Question:
        """The credential of a call, or the question that gets one."""
        source = call.validated.tool.spec.source
        if source in self._providers:
            return await self._providers[source].credential(call)
        return self._shared.get(source, NO_CREDENTIAL)

    async def renewed(self, call: AuthorizedCall, refused: ToolError) -> Credential | Question | None:
        """What may help after the other side refused a call's credential; None when nothing does."""
        provider = self._providers.get(call.tool.spec.source)
        return await provider.renewed(call, refused) if isinstance(provider, RenewingProvider) else None
