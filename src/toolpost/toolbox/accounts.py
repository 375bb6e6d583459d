"""Accounts of a Toolbox's users: sign-ins, and resuming the calls that wait for them."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from toolpost.auth.account_counts import AccountCounts
from toolpost.auth.account_credentials import AccountCredentials
from toolpost.auth.accounts import Accounts
from toolpost.auth.consents import ConnectedAccount, ConsentRequest, Consents, StartedSignIn
from toolpost.auth.oauth.client import ClientProfile
from toolpost.auth.services import Service, service_of
from toolpost.auth.vault import Account
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.events import EventCode
from toolpost.contracts.principal import Principal
from toolpost.contracts.sources import PersonalSource, ToolSource
from toolpost.sources.registry import describe_transport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.configuration.settings import AccountSettings
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.questions import PendingAction
    from toolpost.contracts.storage import PendingStore, Store
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.concurrency import BackgroundTasks
    from toolpost.runtime.event_emitter import EventEmitter
    from toolpost.runtime.pending import PendingActions
    from toolpost.runtime.retention import StoredData
    from toolpost.wire.network import NetworkPolicy

_MOST_WAITING = 10_000
_MOST_PER_PASS = 500
_DONE = "connected"


class AccountState(NamedTuple):
    """The account of a user at a service: `connected`, `doubtful`, `revoked` or `missing`."""

    provider: str
    display_name: str
    status: str
    scopes: tuple[str, ...] = ()
    expires_at: float | None = None
    connected_at: float | None = None


class AccountManager:
    """Accounts of a Toolbox's users at the services that its sources need."""

    def __init__(
        self,
        settings: AccountSettings,
        network: NetworkPolicy,
        *,
        store: Store,
        data: StoredData,
        emitter: EventEmitter,
        redactor: Redactor,
        background: BackgroundTasks,
        pending: PendingActions,
        find_source: Callable[[str], ToolSource | None],
    ) -> None:
        _check_addresses(settings)
        base = (settings.public_url or "").rstrip("/")
        self.counts = AccountCounts()
        self.accounts = Accounts(store.tokens, learn=redactor.learn)
        self.consents = Consents(
            self.accounts,
            redirect_uri=settings.redirect_uri or (f"{base}/oauth/callback" if base else ""),
            start_url=f"{base}/oauth/start" if base else "",
            ttl_s=settings.sign_in_ttl,
            refusal=self._refusal,
        )
        self._profile = ClientProfile(document_url=settings.document_url, device=True)
        self._network = network
        self._data = data
        self._emitter = emitter
        self._redactor = redactor
        self._background = background
        self._pending = pending
        self._find_source = find_source
        self._credentials: dict[str, AccountCredentials] = {}
        self._waiting = WaitingCalls(store.pending, background, self.accounts, self.consents, self.counts)

    def credentials_for(self, config: ExternalToolConfig) -> AccountCredentials:
        """Return the credential provider of an OAuth source and register its service."""
        service = service_of(
            config,
            network=self._network,
            profile=self._profile,
            serves_metadata=describe_transport(config.transport).serves_oauth_metadata,
        )
        self.consents.register(service)
        credentials = self._credentials[config.name] = AccountCredentials(
            service, self.accounts, self.consents, self.counts
        )
        return credentials

    async def states(self, person: Principal) -> list[AccountState]:
        """Return the account of a user at every service."""
        return [await self._state(service, person) for _, service in sorted(self.consents.services.items())]

    async def users(self, tenant: str) -> dict[str, list[AccountState]]:
        """Return the accounts of a tenant's users, without services at which a user has none."""
        rows = await self.accounts.rows.list(tenant=tenant)
        found: dict[str, list[AccountState]] = {}
        for user in dict.fromkeys(row.key.user for row in rows if row.key.user):
            states = await self.states(Principal(tenant, user))
            found[user] = [state for state in states if state.status != "missing"]
        return {user: states for user, states in found.items() if states}

    def requested_scopes(self, provider: str) -> list[str]:
        """Return the configured scopes of a sign-in at a service."""
        service = self.consents.services.get(provider)
        return [] if service is None else list(service.plan.scopes)

    async def connect(
        self, provider: str, person: Principal, *, redirect_uri: str = ""
    ) -> StartedSignIn | ConnectedAccount:
        """Start a sign-in for the user of this machine."""
        return await self.consents.begin(
            self.consents.service(provider), ConsentRequest(person=person), redirect_uri=redirect_uri
        )

    async def finish(
        self, parameters: Mapping[str, str], *, provider: str, person: Principal, browser: str = ""
    ) -> ConnectedAccount:
        """Finish a sign-in with the parameters of a callback, and resume the calls that waited for it.

        `provider` is the service in the callback address. `person` is the user logged in there; sign-ins of other users
        are refused. This continues if the browser disconnects: the code is valid once, and the tokens would be lost.
        """
        finishing = self._finish(parameters, provider=provider, person=person, browser=browser)
        return await asyncio.shield(self._background.start(finishing))

    async def on_connected(self, connected: ConnectedAccount) -> None:
        """Emit the event of a connected account, relist its tools and resume waiting calls."""
        self._emit(EventCode.ACCOUNT_CONNECTED, connected.provider, connected.person, {})
        self._background.start(self._relist(connected))
        await self._waiting.resume(connected, self._pending)

    async def resume_waiting(self, actions: PendingActions) -> None:
        """Resume calls if another process connected their account, even if that process has terminated."""
        await self._waiting.resume_all(actions)

    async def disconnect(self, provider: str, person: Principal) -> bool | None:
        """Remove an account and revoke its tokens.

        Return whether the issuer confirmed, or None if there was no account.
        """
        revoked = await self.accounts.disconnect(self.consents.service(provider), person)
        if revoked is not None:
            self._emit(EventCode.ACCOUNT_DISCONNECTED, provider, person, {"heard": revoked})
        return revoked

    def _emit(self, code: EventCode, provider: str, person: Principal, facts: Mapping[str, Any]) -> None:
        """Emit an event about a user's account, visible to the user's tenant only."""
        self._emitter.emit_source(provider, code, {"user": str(person), **facts}, tenant=person.tenant)

    async def forget(self, person: Principal) -> dict[str, int]:
        """Erase all data of a user, after revoking the tokens at every issuer."""
        await self.consents.forget(person)
        for provider in self.consents.services:
            await self.disconnect(provider, person)
        return await self._data.forget(person)

    async def close(self) -> None:
        """Wait for running refreshes and close every connection."""
        await self.accounts.close()

    async def _finish(
        self, parameters: Mapping[str, str], *, provider: str, person: Principal, browser: str
    ) -> ConnectedAccount:
        try:
            connected = await self.consents.finish(parameters, provider=provider, person=person, browser=browser)
        except ToolError as error:
            error.conceal(self._redactor.message)  # an issuer may echo the request
            self.counts.callback(error.error_code)
            raise
        self.counts.callback()
        await self.on_connected(connected)
        return connected

    async def _state(self, service: Service, person: Principal) -> AccountState:
        account = await self.accounts.held(service, person)
        if account is None:
            return AccountState(service.provider, service.display_name, "missing")
        tokens = account.tokens
        return AccountState(
            service.provider,
            service.display_name,
            "connected" if account.status == "live" else account.status,
            () if tokens is None else tokens.scopes,
            None if tokens is None else tokens.expires_at,
            account.changed_at,
        )

    def _refusal(self, provider: str) -> ToolError | None:
        """Return the last refusal that a source of a service received."""
        names = [name for name, credentials in self._credentials.items() if credentials.service.provider == provider]
        refusals = [source.refusal for name in names if isinstance(source := self._find_source(name), PersonalSource)]
        return next((refused for refused in refusals if refused is not None), None)

    async def _relist(self, connected: ConnectedAccount) -> None:
        for name, credentials in self._credentials.items():
            source = self._find_source(name)
            if credentials.service.provider == connected.provider and isinstance(source, PersonalSource):
                credential = await credentials.credential_for(connected.person)
                if credential is not None:
                    with suppress(ToolError):  # the calls themselves report the error
                        await source.list_for(credential)


def _check_addresses(settings: AccountSettings) -> None:
    """Reject addresses that do not share a cookie: it is bound to scheme and host, regardless of the port."""
    start, back = (urlsplit(url or "") for url in (settings.public_url, settings.redirect_uri))
    if start.netloc and back.netloc and (start.scheme, start.hostname) != (back.scheme, back.hostname):
        raise ConfigError(
            "accounts.public_url and accounts.redirect_uri must have the same scheme and host: a cookie that is "
            f"set at {start.scheme}://{start.hostname} is not sent to {back.scheme}://{back.hostname}"
        )


_Waiter: TypeAlias = tuple[Principal, str]


class WaitingCalls:
    """Find pending consent questions that a connected account answers, and answer them."""

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

    async def resume(self, connected: ConnectedAccount, pending: PendingActions) -> None:
        """Resume the calls that waited for this account, in the background."""
        account = await self._accounts.held(self._consents.service(connected.provider), connected.person)
        for action in await self._open(connected.person.tenant):
            mine = action.asked_by == connected.person and _provider_of(action) == connected.provider
            if mine and account is not None and _helps(account, action):
                self._background.start(self._answer(action, pending))

    async def resume_all(self, pending: PendingActions) -> None:
        """Resume calls if another process connected their account, even if that process has terminated."""
        if not self._consents.services:
            return
        waiting: defaultdict[_Waiter, list[PendingAction]] = defaultdict(list)
        for action in await self._open(None):
            waiting[action.asked_by, _provider_of(action)].append(action)
        for waiter in self._turn(sorted(waiting)):
            for action in await self._helped(waiter, waiting[waiter]):
                self._background.start(self._answer(action, pending))

    def _turn(self, waiters: list[_Waiter]) -> list[_Waiter]:
        """Return the waiters to check now; if there are very many, the next pass continues after them."""
        at = 0 if self._last is None else bisect_right(waiters, self._last)
        chosen = (waiters[at:] + waiters[:at])[:_MOST_PER_PASS]
        self._last = chosen[-1] if chosen else None
        return chosen

    async def _helped(self, waiter: _Waiter, actions: list[PendingAction]) -> list[PendingAction]:
        """Return the calls that paused before their user's account changed."""
        person, provider = waiter
        service = self._consents.services.get(provider)
        account = None if service is None else await self._accounts.held(service, person)
        if account is None or account.status != "live":
            return []
        return [action for action in actions if account.changed_at > action.created_at and _helps(account, action)]

    async def _open(self, tenant: str | None) -> list[PendingAction]:
        actions = await self._pending.list(tenant=tenant, status="open", limit=_MOST_WAITING)
        return [action for action in actions if action.question.kind == "consent"]

    async def _answer(self, action: PendingAction, pending: PendingActions) -> None:
        try:
            await pending.answer(action.id, _DONE, by=str(action.asked_by))
        except ToolError:
            return  # another process answered, or the question has expired
        self._counts.resumed(max(0.0, time.time() - action.created_at))


def _helps(account: Account, action: PendingAction) -> bool:
    """Return whether the grant of an account includes the scopes that a call waits for."""
    more = action.question.key.removeprefix(f"consent:{_provider_of(action)}").removeprefix(":").split()
    tokens = account.tokens
    return tokens is not None and set(more) <= {*tokens.asked, *tokens.scopes}


def _provider_of(action: PendingAction) -> str:
    return str(action.question.payload.get("provider", ""))
