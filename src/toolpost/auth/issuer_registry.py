"""Registry of the issuers of each service: endpoints, our client there, and the resource of the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.metadata import ServerMetadata, covers
from toolpost.auth.oauth.records import pack_record, unpack_record
from toolpost.contracts.storage import TokenKey, TokenRow, TokenRows

if TYPE_CHECKING:
    from toolpost.auth.oauth.sign_in import SignInPlan
    from toolpost.contracts.principal import Principal

PROGRAM = ""  # the tenant of rows that belong to no user; a real tenant has a name
_BINDING = "binding"
_CLIENT = "client"
_MOST = 32


def program_key(kind: str, name: str) -> TokenKey:
    """Return the key of a row that belongs to the program, not to a user."""
    return TokenKey(PROGRAM, kind, name, "", "")


class IssuerBinding(Struct, frozen=True, kw_only=True):
    """The issuer, client and resource that a sign-in to a service used."""

    provider: str
    server: ServerMetadata
    client: Client
    resource: str = ""

    def account_of(self, person: Principal) -> TokenKey:
        """Return the key of a user's tokens.

        Tokens without a resource belong to the service that requested them: another service of the same issuer and
        client has another address, which must not receive them.
        """
        audience = self.resource or f"provider:{self.provider}"
        return TokenKey(person.tenant, person.user, self.server.issuer, audience, self.client.id)

    def with_plan(self, plan: SignInPlan) -> IssuerBinding | None:
        """Return the binding with the operator's current plan; None if the plan names another issuer or client.

        A source with a changed address must not send the tokens of the old one.
        """
        issuer = plan.issuer if plan.server is None else plan.server.issuer
        covered = self.resource in {"", plan.resource} or covers(self.resource, plan.url)
        if issuer not in {None, self.server.issuer} or not covered:
            return None
        own = plan.registered
        if own is None:
            return None if self.client.origin == "registered" else self
        if own.id != self.client.id:
            return None
        return replace(self, server=plan.server or self.server, client=replace(own, issuer=self.server.issuer))


class IssuerRegistry:
    """Store of the issuers and registered clients of all services, newest first per service."""

    def __init__(self, rows: TokenRows) -> None:
        self._rows = rows
        self._known: dict[str, tuple[IssuerBinding, ...]] = {}

    async def of(self, provider: str, *, reload: bool = False) -> tuple[IssuerBinding, ...]:
        """Return the bindings of a service; with `reload`, including those stored by other processes."""
        if reload or provider not in self._known:
            rows = [row for row in await self._list_rows(_BINDING) if row.key.issuer == provider]
            self._known[provider] = tuple(
                unpack_record(IssuerBinding, {**row.body, "provider": row.key.issuer}) for row in rows
            )
        return self._known[provider]

    async def bind_client(self, provider: str, plan: SignInPlan) -> SignInPlan:
        """Return the plan with its client bound to the issuer that it was used with, unless the operator names one.

        Otherwise, if the server names another issuer later, that issuer would receive the client's secret.
        """
        own = plan.registered
        if own is None or own.issuer is not None or plan.server is not None:
            return plan
        issuers = [one.server.issuer for one in await self.of(provider, reload=True) if one.client.id == own.id]
        return replace(plan, registered=replace(own, issuer=issuers[0])) if issuers else plan

    async def clients(self, redirect_uris: tuple[str, ...]) -> dict[str, Client]:
        """Return the dynamically registered clients for these redirect URIs, by issuer."""
        clients = [unpack_record(Client, row.body) for row in await self._list_rows(_CLIENT)]
        uris = set(redirect_uris)
        return {one.issuer: one for one in reversed(clients) if one.issuer and uris <= set(one.redirect_uris)}

    async def keep_client(self, client: Client) -> None:
        """Store a dynamically registered client, even if the user does not consent."""
        if client.origin != "dynamic" or not client.issuer:
            return
        body = pack_record(client)
        key = TokenKey(PROGRAM, _CLIENT, client.issuer, " ".join(client.redirect_uris), "")
        row = await self._rows.get(key)
        if row is None or row.body != body:
            await self._rows.put(key, body)

    async def forget_client(self, client: Client) -> None:
        """Delete a client that its issuer no longer knows; the next sign-in registers a new one."""
        for row in await self._list_rows(_CLIENT) if client.origin == "dynamic" else ():
            if (row.key.issuer, row.body["id"]) == (client.issuer, client.id):
                await self._rows.remove(row.key, version=row.version)

    async def keep(self, binding: IssuerBinding) -> None:
        """Store the binding of a sign-in."""
        provider = binding.provider
        key = TokenKey(PROGRAM, _BINDING, provider, f"{binding.server.issuer} {binding.resource}", binding.client.id)
        if binding.client.origin == "registered":  # its secrets stay in the configuration, where they may change
            binding = replace(binding, client=replace(binding.client, secret=None, private_key=None))
        await self._rows.put(key, pack_record(binding))
        for old in (await self.of(provider, reload=True))[_MOST:]:
            gone = f"{old.server.issuer} {old.resource}"
            await self._rows.remove(TokenKey(PROGRAM, _BINDING, provider, gone, old.client.id))

    async def _list_rows(self, kind: str) -> list[TokenRow]:
        """Return the rows of a kind, newest first."""
        rows = [row for row in await self._rows.list(tenant=PROGRAM, user=kind) if row.body]
        return sorted(rows, key=lambda row: row.version, reverse=True)
