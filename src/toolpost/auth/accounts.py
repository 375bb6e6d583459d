"""The accounts of people at the services that sources need: looked up, renewed, and let go."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from toolpost.auth.bindings import Binding, Bindings
from toolpost.auth.leases import ConsentNeeded, Refreshed, Renewer, Revoked, Unknown
from toolpost.auth.oauth import refresh as refreshing
from toolpost.auth.oauth.driver import run_flow
from toolpost.auth.oauth.records import packed, unpacked
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.vault import Vault
from toolpost.contracts.errors import ToolError
from toolpost.contracts.tokens import TokenKey
from toolpost.wire.client import HttpClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.auth.leases import Current, Renewal
    from toolpost.auth.services import Service
    from toolpost.auth.vault import Account
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.tokens import TokenRows


class Accounts:
    """Tokens of people, good when they are handed out; nobody's are ever anybody else's.

    `learn` is given every secret that passes, so that whoever redacts knows it.
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
        self.learn = learn or _unlearned
        self.bindings = Bindings(rows)
        self._vault: Vault[TokenSet] = Vault(
            rows, pack=packed, unpack=partial(unpacked, TokenSet), learn=self.learn, clock=clock
        )
        self._renewer = Renewer(self._vault)
        self._clients: dict[str, HttpClient] = {}

    async def current(self, service: Service, person: Principal, *, rejected: int | None = None) -> Current[TokenSet]:
        """A person's account with tokens that are good now; `rejected` is a version that is no longer taken."""
        binding = await self.bindings.of(service.provider)
        if binding is None:
            return ConsentNeeded(key=TokenKey(*person, service.provider, "", ""), reason="missing")
        renew = partial(self._renew, service, binding)
        return await self._renewer.current(binding.account_of(person), renew, rejected=rejected)

    async def held(self, service: Service, person: Principal) -> Account[TokenSet] | None:
        """What is kept of a person's account, in whatever state."""
        binding = await self.bindings.of(service.provider)
        return None if binding is None else await self._vault.find(binding.account_of(person))

    async def keep(
        self, service: Service, person: Principal, *, binding: Binding, tokens: TokenSet
    ) -> Account[TokenSet]:
        """Keep what a consent brought."""
        await self.bindings.keep(service.provider, binding)
        return await self._vault.keep(binding.account_of(person), tokens)

    async def disconnect(self, service: Service, person: Principal) -> bool | None:
        """Forget a person's account and tell its issuer; whether that was heard, None when there was no account."""
        binding = await self.bindings.of(service.provider)
        account = None if binding is None else await self._vault.find(binding.account_of(person))
        if binding is None or account is None:
            return None
        await self.rows.remove(account.key)
        if account.tokens is None:
            return True
        ending = refreshing.revoke(binding.server, binding.client, account.tokens, clock=self.clock)
        try:
            return await run_flow(ending, self.client_for(service))
        except ToolError:
            return False

    def client_for(self, service: Service) -> HttpClient:
        """What reaches a service's issuer, within what an operator allowed for it."""
        client = self._clients.get(service.provider)
        if client is None:
            client = self._clients[service.provider] = HttpClient(service.network)
        return client

    async def close(self) -> None:
        """Wait for renewals and close every connection."""
        await self._renewer.close()
        for client in self._clients.values():
            await client.close()

    async def _renew(self, service: Service, binding: Binding, account: Account[TokenSet]) -> Renewal[TokenSet]:
        if account.tokens is None:
            return Revoked("there are no tokens")
        asking = refreshing.refresh(binding.server, binding.client, account.tokens, clock=self.clock)
        match await run_flow(asking, self.client_for(service)):
            case refreshing.Refreshed(tokens):
                return Refreshed(tokens)
            case refreshing.Revoked(reason):
                return Revoked(reason)
            case refreshing.Unknown(reason):
                return Unknown(reason)


def _unlearned(_: set[str]) -> None:
    """Nobody redacts here."""
