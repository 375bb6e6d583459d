"""Finds the credential that a permitted call travels with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.calls import NO_CREDENTIAL

if TYPE_CHECKING:
    from toolpost.contracts.calls import Credential, PermittedCall
    from toolpost.contracts.questions import Question


class Authorizer:
    """Python tools act with the rights of this process, so their calls travel without a credential."""

    def authorize(self, call: PermittedCall) -> Credential | Question:
        """The credential of a call, or the question that gets one."""
        return NO_CREDENTIAL
