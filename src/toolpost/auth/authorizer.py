"""Finds the credential that a permitted call travels with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.calls import NO_CREDENTIAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.calls import Credential, PermittedCall
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import CredentialProvider


class Authorizer:
    """Knows, by source, the credential that all share, or who provides one for each person.

    Python tools act with the rights of this process, so their calls travel without one.
    """

    def __init__(self, providers: Mapping[str, CredentialProvider] | None = None) -> None:
        self._shared: dict[str, Credential] = {}
        self._providers = dict(providers or {})

    def share(self, source: str, credential: Credential) -> None:
        """Let every call of a source travel with this credential."""
        self._shared[source] = credential

    async def authorize(self, call: PermittedCall) -> Credential | Question:
        """The credential of a call, or the question that gets one."""
        source = call.validated.tool.spec.source
        if source in self._providers:
            return await self._providers[source].credential(call)
        return self._shared.get(source, NO_CREDENTIAL)
