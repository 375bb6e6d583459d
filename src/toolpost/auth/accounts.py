"""Accounts of users at services: find, store, refresh and revoke their tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from toolpost.auth.issuer_registry import IssuerBinding, IssuerRegistry
from toolpost.auth.oauth.flow import CLIENT_REFUSED, run_flow
from toolpost.auth.oauth.metadata import ServerMetadata, find_resource
from toolpost.auth.oauth.refresh import GrantRevoked, RefreshedTokens, RefreshOutcome, refresh, revoke
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.token_refresher import ConsentNeeded, Current, TokenRefresher
from toolpost.auth.vault import Account, Vault
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.storage import TokenKey, TokenRows
from toolpost.wire.client import HttpClient

if TYPE_CHECKING:
    from toolpost.auth.oauth.challenges import AuthChallenge
    from toolpost.auth.oauth.client import Client
    from toolpost.auth.services import Service
    from toolpost.contracts.principal import Principal


class Accounts:
    """Accounts of users at services: find, store, refresh and revoke tokens.

    `learn` receives every secret that is read or written, for redaction.
    """

    def __init__(
        self,
        rows: TokenRows,
        *,
        learn: Callable[[set[str]], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.rows = rows
        self.clock = clock
        self.learn: Callable[[set[str]], None] = learn or (lambda _secrets: None)
        self.issuers = IssuerRegistry(rows)
        self._vault = Vault(rows, learn=self.learn, clock=clock)
        self._refresher = TokenRefresher(self._vault)
        self._clients: dict[str, HttpClient] = {}

    async def current(self, service: Service, person: Principal, *, rejected: int | None = None) -> Current:
        """Return the account of a user with valid tokens; the resource no longer accepts the version `rejected`."""
        needed = ConsentNeeded(key=TokenKey(*person, service.provider, "", ""), reason="missing")
        for reload in (False, True):  # the user may have signed in through another process or at another issuer
            for binding in await self._bindings(service, reload=reload):
                renew = partial(self._renew, service, binding)
                current = await self._refresher.current(binding.account_of(person), renew, rejected=rejected)
                if not isinstance(current, ConsentNeeded):
                    return current
                needed = needed if current.reason == "missing" else current
        return needed

    async def held(self, service: Service, person: Principal) -> Account | None:
        """Return the stored account of a user in any status."""
        keys = [binding.account_of(person) for binding in await self._bindings(service, reload=True)]
        accounts = [account for key in keys if (account := await self._vault.standing(key)) is not None]
        return max(accounts, key=lambda account: account.version, default=None)

    async def keep(
        self, service: Service, person: Principal, tokens: TokenSet, *, server: ServerMetadata, client: Client
    ) -> None:
        """Store the tokens of a consent and delete those of other issuers for the same service."""
        binding = IssuerBinding(provider=service.provider, server=server, client=client, resource=tokens.resource or "")
        await self.issuers.keep(binding)
        account = await self._vault.keep(binding.account_of(person), tokens)
        for other in await self.issuers.of(service.provider):
            if (key := other.account_of(person)) != account.key:
                await self.rows.remove(key)

    async def disconnect(self, service: Service, person: Principal) -> bool | None:
        """Delete the account of a user and revoke its tokens.

        Return whether the issuer confirmed the revocation, or None if there was no account.
        """
        revoked: list[bool] = []
        for binding in await self._bindings(service, reload=True):
            account = await self._take_out(binding.account_of(person))
            if account is not None:
                over = account.tokens is None and account.status == "revoked"
                revoked.append(over or await self._revoke(service, binding, account.tokens))
        return all(revoked) if revoked else None

    async def has_moved(self, service: Service, person: Principal, challenge: AuthChallenge) -> bool:
        """Return whether the server that rejects the tokens of a user now names another issuer."""
        account = await self.held(service, person)
        plan = service.plan
        if account is None or plan.server is not None or plan.is_settled:
            return False
        looking = find_resource(plan.url, trust=plan.trust, metadata_url=challenge.resource_metadata)
        try:
            resource = await run_flow(looking, self.client_for(service))
        except ToolError:
            return False
        return resource is not None and account.key.issuer not in resource.authorization_servers

    def client_for(self, service: Service) -> HttpClient:
        """Return the HTTP client for the issuer of a service, under the network policy of the service."""
        client = self._clients.get(service.provider)
        if client is None:
            client = self._clients[service.provider] = HttpClient(service.network)
        return client

    async def close(self) -> None:
        """Wait for running refreshes and close every connection."""
        await self._refresher.close()
        for client in self._clients.values():
            await client.close()

    async def _bindings(self, service: Service, *, reload: bool) -> list[IssuerBinding]:
        bindings = await self.issuers.of(service.provider, reload=reload)
        return [current for binding in bindings if (current := binding.with_plan(service.plan)) is not None]

    async def _take_out(self, key: TokenKey) -> Account | None:
        """Delete an account and return its last version, even if it is refreshed concurrently."""
        while (account := await self._vault.standing(key)) is not None:
            # An account that cannot be decrypted has no version.
            if await self.rows.remove(key, version=account.version or None):
                return account
        return None

    async def _revoke(self, service: Service, binding: IssuerBinding, tokens: TokenSet | None) -> bool:
        if tokens is None:
            return False
        ending = revoke(binding.server, binding.client, tokens, clock=self.clock)
        try:
            return await run_flow(ending, self.client_for(service))
        except ToolError:
            return False

    async def _renew(self, service: Service, binding: IssuerBinding, account: Account) -> RefreshOutcome:
        if account.tokens is None:
            return GrantRevoked("the account has no tokens")
        flow = refresh(binding.server, binding.client, account.tokens, clock=self.clock)
        try:
            renewal = await run_flow(flow, self.client_for(service))
        except ToolAuthError as refused:
            if binding.client.origin != "dynamic" or refused.error_code != CLIENT_REFUSED:
                raise
            await self.issuers.forget_client(binding.client)
            return GrantRevoked("the issuer no longer knows this client")
        if isinstance(renewal, RefreshedTokens):
            return renewal._replace(revoke=partial(self._revoke, service, binding, renewal.tokens))
        return renewal
