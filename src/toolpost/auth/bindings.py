"""What the program knows of a service's issuer: its endpoints, our client there, and what tokens are for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.metadata import ServerMetadata
from toolpost.auth.oauth.records import packed, unpacked
from toolpost.contracts.tokens import TokenKey

if TYPE_CHECKING:
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.tokens import TokenRows

PROGRAM = ""  # the tenant of rows that are no person's; none can be called so


def program_key(kind: str, name: str) -> TokenKey:
    """Where the program keeps something of its own."""
    return TokenKey(PROGRAM, kind, name, "", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """One service as the last sign-in found it."""

    server: ServerMetadata
    client: Client
    resource: str = ""

    def account_of(self, person: Principal) -> TokenKey:
        """Where a person's tokens are."""
        return TokenKey(person.tenant, person.user, self.server.issuer, self.resource, self.client.id)


class Bindings:
    """The bindings of all services, by their name."""

    def __init__(self, rows: TokenRows) -> None:
        self._rows = rows
        self._known: dict[str, Binding] = {}

    async def of(self, provider: str) -> Binding | None:
        """What is known of a service; another process may have found it out."""
        known = self._known.get(provider)
        if known is not None:
            return known
        row = await self._rows.get(program_key("binding", provider))
        if row is None or not row.body:
            return None
        binding = self._known[provider] = _read(row.body)
        return binding

    async def clients(self) -> dict[str, Client]:
        """Our clients by issuer, so that none is registered twice."""
        rows = await self._rows.list(tenant=PROGRAM, user="binding")
        found = [_read(row.body) for row in rows if row.body]
        return {binding.server.issuer: binding.client for binding in found}

    async def keep(self, provider: str, binding: Binding) -> None:
        """Remember what a sign-in found."""
        if self._known.get(provider) == binding:
            return
        await self._rows.put(program_key("binding", provider), _written(binding))
        self._known[provider] = binding


def _written(binding: Binding) -> dict[str, Any]:
    return {
        "server": json.loads(packed(binding.server)),
        "client": json.loads(packed(binding.client)),
        "resource": binding.resource,
    }


def _read(body: Any) -> Binding:
    return Binding(
        server=unpacked(ServerMetadata, json.dumps(body["server"]).encode()),
        client=unpacked(Client, json.dumps(body["client"]).encode()),
        resource=str(body["resource"]),
    )
