"""Calls that wait for a person to connect an account, and go on by themselves once that is done."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from toolpost.contracts.errors import ToolError
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from toolpost.auth.accounts import Accounts
    from toolpost.auth.consents import ConnectedAccount, Consents
    from toolpost.auth.token_refresh import Account
    from toolpost.auth.user_credentials import AccountCounts
    from toolpost.contracts.questions import PendingAction
    from toolpost.contracts.storage import PendingStore
    from toolpost.runtime.concurrency import BackgroundTasks
    from toolpost.runtime.pending import PendingActions

_MOST_WAITING = 10_000
_MOST_A_TURN = 500
_DONE = "connected"
_Waiter: TypeAlias = tuple[Principal, str]


class WaitingCalls:
    """Finds the questions for consent that are answered by an account, and answers them."""

    def __init__(
        self,
        pending: PendingStore,
        background: BackgroundTasks,
        accounts: Accounts,
        consents: Consents,
        counts: AccountCounts,
    ) -> None:
        self._pending = pending
        self._background = background
        self._accounts = accounts
        self._consents = consents
        self._counts = counts
        self._last: _Waiter | None = None

    async def go_on(self, connected: ConnectedAccount, desk: PendingActions) -> None:
        """Let the calls that waited for this account go on, in the background."""
        account = await self._accounts.held(self._consents.service(connected.provider), connected.person)
        for action in await self._open(connected.person.tenant):
            mine = action.asked_by == connected.person and _provider_of(action) == connected.provider
            if mine and account is not None and _helps(account, action):
                self._background.start(self._answer(action, desk))

    async def sweep(self, desk: PendingActions) -> None:
        """Let calls go on whose account was connected elsewhere, or by a process that then died."""
        if not self._consents.services:
            return
        waiting: defaultdict[_Waiter, list[PendingAction]] = defaultdict(list)
        for action in await self._open(None):
            waiting[action.asked_by, _provider_of(action)].append(action)
        for waiter in self._turn(sorted(waiting)):
            for action in await self._helped(waiter, waiting[waiter]):
                self._background.start(self._answer(action, desk))

    def _turn(self, waiters: list[_Waiter]) -> list[_Waiter]:
        """Those whose account is looked at now; of very many, each has its turn."""
        at = 0 if self._last is None else bisect_right(waiters, self._last)
        chosen = (waiters[at:] + waiters[:at])[:_MOST_A_TURN]
        self._last = chosen[-1] if chosen else None
        return chosen

    async def _helped(self, waiter: _Waiter, actions: list[PendingAction]) -> list[PendingAction]:
        """The calls of a person that an account has helped since they were asked about."""
        person, provider = waiter
        service = self._consents.services.get(provider)
        account = None if service is None else await self._accounts.held(service, person)
        if account is None or account.status != "live":
            return []
        return [action for action in actions if account.changed_at > action.created_at and _helps(account, action)]

    async def _open(self, tenant: str | None) -> list[PendingAction]:
        found = await self._pending.list(tenant=tenant, status="open", limit=_MOST_WAITING)
        return [action for action in found if action.question.kind == "consent"]

    async def _answer(self, action: PendingAction, desk: PendingActions) -> None:
        try:
            await desk.answer(action.id, _DONE, by=str(action.asked_by))
        except ToolError:
            return  # somebody was faster, or the question is gone
        self._counts.resumed(max(0.0, time.time() - action.created_at))


def _helps(account: Account, action: PendingAction) -> bool:
    """Whether an account is what a call waits for; one that needs more scopes is not helped by a grant without them."""
    more = action.question.key.removeprefix(f"consent:{_provider_of(action)}").removeprefix(":").split()
    tokens = account.tokens
    return tokens is not None and set(more) <= {*tokens.asked, *tokens.scopes}


def _provider_of(action: PendingAction) -> str:
    return str(action.question.payload.get("provider", ""))
