"""Codes that browsers brought, exchanged for tokens that are kept, whether or not the browser waits for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from toolpost.auth.bindings import Binding, program_key
from toolpost.auth.oauth.authorization import exchange_code
from toolpost.auth.oauth.driver import run_flow
from toolpost.auth.oauth.refusals import CLIENT_REFUSED
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from toolpost.auth.accounts import Accounts
    from toolpost.auth.oauth.authorization import Transaction
    from toolpost.auth.oauth.tokens import TokenSet
    from toolpost.auth.services import Service
    from toolpost.contracts.tokens import TokenRow


class Redeemer:
    """Finishes sign-ins whose row was taken out; a code serves once, so one that began is carried through."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._running: dict[asyncio.Task[None], Principal] = {}

    async def redeem(self, service: Service, transaction: Transaction, code: str, row: TokenRow) -> None:
        """Keep the tokens of a code; the ticket that led there is used up."""
        task = asyncio.ensure_future(self._redeem(service, transaction, code, row))
        self._running[task] = _person(transaction)
        task.add_done_callback(self._landed)
        await asyncio.shield(task)

    async def settled(self, person: Principal) -> None:
        """Wait for what is being redeemed for a person here; each has a deadline."""
        if mine := [task for task, whose in self._running.items() if whose == person]:
            await asyncio.wait(mine)

    async def _redeem(self, service: Service, transaction: Transaction, code: str, row: TokenRow) -> None:
        tokens = await self._tokens(service, transaction, code, row)
        binding = Binding(
            provider=service.provider,
            server=transaction.server,
            client=transaction.client,
            resource=transaction.resource or "",
        )
        await self._accounts.keep(service, _person(transaction), binding=binding, tokens=tokens)
        if ticket := row.body.get("ticket"):
            await self._accounts.rows.remove(program_key("ticket", ticket))

    async def _tokens(self, service: Service, transaction: Transaction, code: str, row: TokenRow) -> TokenSet:
        """What a code is worth; where the issuer did not look at it, the browser may bring it once more."""
        redeeming = exchange_code(transaction, code, clock=self._accounts.clock)
        try:
            return await run_flow(redeeming, self._accounts.client_for(service))
        except ToolAuthError as refused:
            if refused.error_code == CLIENT_REFUSED:
                await self._accounts.bindings.forget_client(transaction.client)
            raise
        except ToolError:
            await self._accounts.rows.put(row.key, row.body)
            raise

    def _landed(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not task.cancelled():
            task.exception()  # The browser may be gone; then nobody else looks at it.


def _person(transaction: Transaction) -> Principal:
    return Principal(transaction.caller.tenant, transaction.caller.user)
