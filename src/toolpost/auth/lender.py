"""Lends each person's own token for one source, and asks for consent where there is none."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from toolpost.auth.consents import Connected, Wish
from toolpost.auth.leases import ConsentNeeded
from toolpost.auth.oauth.challenge import demand_of
from toolpost.auth.oauth.tokens import request_headers
from toolpost.contracts.calls import Credential
from toolpost.contracts.errors import ToolAuthError
from toolpost.contracts.questions import Question
from toolpost.wire.headers import Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.auth.account_counts import AccountCounts
    from toolpost.auth.accounts import Accounts
    from toolpost.auth.consents import Consents
    from toolpost.auth.oauth.challenge import Demand
    from toolpost.auth.oauth.tokens import TokenSet
    from toolpost.auth.services import Service
    from toolpost.auth.vault import Account
    from toolpost.contracts.calls import AuthorizedCall, PermittedCall, RequestedCall
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.principal import Principal


class AccountLender:
    """Fulfils `CredentialProvider` for the sources of one service; what it lends is the caller's own."""

    def __init__(self, service: Service, accounts: Accounts, consents: Consents, counts: AccountCounts) -> None:
        self.service = service
        self._accounts = accounts
        self._consents = consents
        self._counts = counts
        self._versions: dict[str, int] = {}

    async def credential(self, call: PermittedCall) -> Credential | Question:
        """The caller's token, or the question that gets one."""
        request = call.validated.request
        found = await self._accounts.current(self.service, request.principal)
        if isinstance(found, ConsentNeeded):
            self._counts.missed(self.service.provider)
            return await self._ask(request, demand_of(401, Headers(())))
        self._counts.hit(self.service.provider)
        return self._lent(found)

    async def lent_to(self, person: Principal) -> Credential | None:
        """A person's token, if there is one that is good."""
        found = await self._accounts.current(self.service, person)
        return None if isinstance(found, ConsentNeeded) else self._lent(found)

    async def renewed(self, call: AuthorizedCall, refused: ToolError) -> Credential | Question | None:
        """What may help after the other side refused a credential; None when nothing does."""
        request = call.request
        demand = demand_of(
            refused.status_code or 401, Headers(tuple(("WWW-Authenticate", c) for c in refused.challenges))
        )
        if refused.status_code == 403:
            return await self._ask(request, demand) if demand.wants_more_scopes else None
        rejected = self._versions.get(call.credential.key)
        found = await self._accounts.current(self.service, request.principal, rejected=rejected)
        if isinstance(found, ConsentNeeded):
            return await self._ask(request, demand)
        # A token that was just renewed and is refused again will not be taken the third time either.
        return None if found.version == rejected else self._lent(found)

    async def _ask(self, request: RequestedCall, demand: Demand) -> Credential | Question:
        service, scopes = self.service, demand.scopes or ()
        key = f"consent:{service.provider}" + (f":{' '.join(sorted(scopes))}" if demand.wants_more_scopes else "")
        if key in request.answers:
            raise ToolAuthError(f"OAuth for {service.provider} was not completed", code="oauth_not_completed")
        held = await self._accounts.held(service, request.principal)
        refused = held.tokens if held is not None and demand.wants_more_scopes else None
        wish = Wish(person=request.principal, demand=demand, refused=refused, trace_id=request.correlation_id)
        payload = await self._payload(wish)
        if payload is None:
            return await self._granted(request)
        self._counts.paused(service.provider)
        return Question(
            kind="consent",
            prompt=f"{service.display_name} wants your consent. Sign in, and the call goes on by itself.",
            reason="external_event",
            payload=payload,
            key=key,
        )

    async def _payload(self, wish: Wish) -> dict[str, object] | None:
        """What a person needs to sign in; None when nobody is needed."""
        service = self.service
        told: dict[str, object] = {
            "pause_type": "oauth",
            "provider": service.provider,
            "display_name": service.display_name,
        }
        if self._consents.start_url and service.plan.grant == "code":
            scopes = list(wish.demand.scopes or service.plan.scopes)
            return {**told, "auth_url": await self._consents.invite(service, wish), "scopes": scopes}
        begun = await self._consents.begin(service, wish)
        if isinstance(begun, Connected):
            return None
        return {**told, "auth_url": begun.url, "scopes": list(begun.scopes), "state": begun.state}

    async def _granted(self, request: RequestedCall) -> Credential:
        found = await self._accounts.current(self.service, request.principal)
        if isinstance(found, ConsentNeeded):
            raise ToolAuthError(f"OAuth for {self.service.provider} was not completed", code="oauth_not_completed")
        return self._lent(found)

    def _lent(self, account: Account[TokenSet]) -> Credential:
        tokens = account.tokens
        if tokens is None:
            raise ToolAuthError(f"OAuth for {self.service.provider} was not completed", code="oauth_not_completed")
        name = hashlib.sha256("\0".join(account.key).encode()).hexdigest()
        key = f"account:{name}"
        self._versions[key] = account.version
        headers = {"Authorization": f"{tokens.token_type} {tokens.access_token.reveal()}"}
        return Credential(key, headers, _proofs(tokens) if tokens.dpop_key else None)


def _proofs(tokens: TokenSet) -> Callable[[str, str, str], Mapping[str, str]]:
    def proof(method: str, url: str, nonce: str) -> Mapping[str, str]:
        return request_headers(tokens, method, url, nonce=nonce)

    return proof
