"""Credentials from the accounts of users: the token of each caller, or the consent question for it."""

from __future__ import annotations

import asyncio
import hashlib
from http import HTTPStatus
from typing import TYPE_CHECKING

from toolpost.auth.accounts import Accounts
from toolpost.auth.consents import NO_CHALLENGE, ConnectedAccount, ConsentRequest, Consents, challenge_of
from toolpost.auth.oauth.challenges import AuthChallenge
from toolpost.auth.oauth.sign_in import scopes_to_keep
from toolpost.auth.oauth.tokens import request_headers
from toolpost.auth.token_refresher import ConsentNeeded
from toolpost.auth.vault import Account
from toolpost.contracts.calls import AuthorizedCall, Credential, PermittedCall, RequestedCall
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.questions import Question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.auth.account_counts import AccountCounts
    from toolpost.auth.services import Service
    from toolpost.contracts.principal import Principal

_MOST_CONSENTS = 4


class AccountCredentials:
    """Implements `CredentialProvider` for the sources of one service with the tokens of each caller."""

    def __init__(self, service: Service, accounts: Accounts, consents: Consents, counts: AccountCounts) -> None:
        self.service = service
        self._accounts = accounts
        self._consents = consents
        self._counts = counts
        self._replaced: dict[str, int] = {}
        self._signing_in = asyncio.Lock()

    async def credential(self, call: PermittedCall) -> Credential | Question:
        """Return the credential of the caller, or the consent question for it."""
        request = call.validated.request
        account = await self._accounts.current(self.service, request.principal)
        if isinstance(account, ConsentNeeded):
            self._counts.missed(self.service.provider)
            return await self._consent(request, NO_CHALLENGE)
        self._counts.hit(self.service.provider)
        return self._credential(account)

    async def credential_for(self, person: Principal) -> Credential | None:
        """Return the credential of a user with valid tokens, or None."""
        account = await self._accounts.current(self.service, person)
        return None if isinstance(account, ConsentNeeded) else self._credential(account)

    async def renewed(self, call: AuthorizedCall, refused: ToolError) -> Credential | Question | None:
        """Return another credential or a consent question after a rejection; None if neither helps."""
        request, key = call.request, call.credential.key
        challenge = challenge_of(refused)
        if refused.status_code == HTTPStatus.FORBIDDEN:
            return await self._consent(request, challenge) if challenge.wants_more_scopes else None
        rejected = await self._version_of(call)
        # Tokens that were refreshed after a rejection and are rejected again do not help, even if they are fresh: the
        # server may trust another issuer now.
        useless = rejected is not None and rejected == self._replaced.get(key)
        if useless or await self._accounts.has_moved(self.service, request.principal, challenge):
            return await self._consent(request, challenge, rejected)
        account = await self._accounts.current(self.service, request.principal, rejected=rejected)
        if isinstance(account, ConsentNeeded):
            return await self._consent(request, challenge, rejected)
        if rejected is not None:
            self._replaced[key] = account.version
        renewed = self._credential(account)
        return None if renewed.headers == call.credential.headers else renewed

    async def _version_of(self, call: AuthorizedCall) -> int | None:
        """Return the version of the tokens that a call was sent with; None if they were replaced since."""
        account = await self._accounts.held(self.service, call.request.principal)
        if account is None or account.tokens is None:
            return None
        return account.version if self._credential(account).headers == call.credential.headers else None

    async def _consent(
        self, request: RequestedCall, challenge: AuthChallenge, rejected: int | None = None
    ) -> Credential | Question:
        service = self.service
        challenge = self._consents.effective_challenge(service, challenge)
        if not service.attended:
            return await self._sign_in_unattended(request, challenge, rejected)
        more = f":{' '.join(sorted(challenge.scopes or ()))}" if challenge.wants_more_scopes else ""
        key = f"consent:{service.provider}{more}"
        account = await self._accounts.held(service, request.principal)
        scopes_to_keep(challenge, None if account is None else account.tokens)
        if key in request.answers:
            raise self._not_completed() if rejected is None else self._token_refused()
        if sum(answer_key.startswith("consent:") for answer_key in request.answers) >= _MOST_CONSENTS:
            raise self._too_many_consents()
        consent = ConsentRequest(
            person=request.principal, challenge=challenge, trace_id=request.correlation_id, tool=request.tool_name
        )
        payload = await self._payload(consent)
        self._counts.paused(service.provider)
        return Question(
            kind="consent",
            prompt=f"{service.display_name} wants your consent. Sign in, and the call resumes automatically.",
            reason="external_event",
            payload=payload,
            key=key,
        )

    async def _payload(self, consent: ConsentRequest) -> dict[str, object]:
        """Return the payload of a consent question: the sign-in address and the scopes."""
        service = self.service
        payload: dict[str, object] = {
            "pause_type": "oauth",
            "provider": service.provider,
            "display_name": service.display_name,
        }
        scopes = list(consent.challenge.scopes or ())
        if self._consents.start_url:
            return {**payload, "auth_url": await self._consents.invite(service, consent), "scopes": scopes}
        if not self._consents.redirect_uri:  # a user can still connect it at a terminal
            return {**payload, "scopes": scopes}
        started = await self._consents.begin(service, consent)
        if isinstance(started, ConnectedAccount):
            raise self._not_completed()
        return {**payload, "auth_url": started.url, "scopes": list(started.scopes), "state": started.state}

    async def _sign_in_unattended(
        self, request: RequestedCall, challenge: AuthChallenge, rejected: int | None
    ) -> Credential:
        """Get tokens without a user; one of several concurrent calls requests them."""
        person = request.principal
        async with self._signing_in:
            account = await self._accounts.current(self.service, person, rejected=rejected)
            if challenge.wants_more_scopes or isinstance(account, ConsentNeeded):
                await self._consents.begin(self.service, ConsentRequest(person=person, challenge=challenge))
                account = await self._accounts.current(self.service, person)
        if isinstance(account, ConsentNeeded):
            raise self._not_completed()
        return self._credential(account)

    def _not_completed(self) -> ToolAuthError:
        return ToolAuthError(f"OAuth for {self.service.provider} was not completed", code="oauth_not_completed")

    def _token_refused(self) -> ToolAuthError:
        return ToolAuthError(
            f"{self.service.display_name} rejected a token that was issued for this call. Signing in again will not "
            f"help until your operator, or the operator of {self.service.display_name}, has found the cause.",
            code="oauth_token_refused",
            status_code=HTTPStatus.UNAUTHORIZED,
        )

    def _too_many_consents(self) -> ToolAuthError:
        return ToolAuthError(
            f"{self.service.display_name} requires another consent for the same call, after {_MOST_CONSENTS}. "
            "Its operator must request all scopes of the call together.",
            code="oauth_scope_refused",
            status_code=HTTPStatus.FORBIDDEN,
        )

    def _credential(self, account: Account) -> Credential:
        tokens = account.tokens
        if tokens is None:
            raise self._not_completed()
        name = hashlib.sha256("\0".join(account.key).encode()).hexdigest()
        headers = {"Authorization": f"{tokens.token_type} {tokens.access_token.reveal()}"}

        def proof(method: str, url: str, nonce: str) -> Mapping[str, str]:
            return request_headers(tokens, method, url, nonce=nonce)

        return Credential(f"account:{name}", headers, proof if tokens.dpop_key else None)
