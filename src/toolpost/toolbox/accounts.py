"""Where people connect their accounts: a callback finishes a sign-in, and the calls that waited for it go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from toolpost.auth.account_credentials import AccountCredentials
from toolpost.auth.accounts import Accounts
from toolpost.auth.consents import ConnectedAccount, ConsentRequest, Consents
from toolpost.auth.oauth.client import ClientProfile
from toolpost.auth.services import service_of
from toolpost.auth.user_credentials import AccountCounts
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.events import EventCode
from toolpost.contracts.principal import Principal
from toolpost.contracts.sources import PersonalSource
from toolpost.toolbox.waiting_calls import WaitingCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.auth.consents import StartedSignIn
    from toolpost.auth.services import Service
    from toolpost.configuration.settings import AccountSettings
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.sources import ToolSource
    from toolpost.contracts.storage import Store
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.concurrency import BackgroundTasks
    from toolpost.runtime.event_emitter import EventEmitter
    from toolpost.runtime.pending import PendingActions
    from toolpost.wire.network import NetworkPolicy


class AccountState(NamedTuple):
    """One service as one person sees it: `connected`, `doubtful`, `revoked` or `missing`."""

    provider: str
    display_name: str
    status: str
    scopes: tuple[str, ...] = ()
    expires_at: float | None = None
    connected_at: float | None = None


class AccountManager:
    """The accounts of a Toolbox's people at the services that its sources need."""

    def __init__(
        self,
        settings: AccountSettings,
        network: NetworkPolicy,
        *,
        store: Store,
        emitter: EventEmitter,
        redactor: Redactor,
        background: BackgroundTasks,
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
        )
        self._profile = ClientProfile(document_url=settings.document_url, device=True)
        self._network = network
        self._store = store
        self._emitter = emitter
        self._redactor = redactor
        self._background = background
        self._credentials: dict[str, AccountCredentials] = {}
        self._waiting = WaitingCalls(store.pending, background, self.accounts, self.consents, self.counts)

    def credentials_for(self, config: ExternalToolConfig) -> AccountCredentials:
        """Who lends people's own tokens for a source."""
        service = service_of(config, network=self._network, profile=self._profile)
        self.consents.offer(service)
        credentials = self._credentials[config.name] = AccountCredentials(
            service, self.accounts, self.consents, self.counts
        )
        return credentials

    def attach(self, desk: PendingActions, source: Callable[[str], ToolSource | None]) -> None:
        """Learn where calls wait, and how to get at a source, which hears refusals and may list its tools anew."""
        self._desk = desk
        self._source = source
        self.consents.refusal = self._refusal

    async def states(self, person: Principal) -> list[AccountState]:
        """Every service, and how a person stands there."""
        return [await self._state(service, person) for _, service in sorted(self.consents.services.items())]

    async def connect(
        self, provider: str, person: Principal, *, redirect_uri: str = ""
    ) -> StartedSignIn | ConnectedAccount:
        """Begin a sign-in for somebody who sits at this machine."""
        return await self.consents.begin(
            self.consents.service(provider), ConsentRequest(person=person), redirect_uri=redirect_uri
        )

    async def finish(
        self, parameters: Mapping[str, str], *, provider: str, person: Principal, browser: str = ""
    ) -> ConnectedAccount:
        """Take what a browser brought back, and let the calls that waited for it go on.

        `provider` is the service to whose address the browser came back, the last part of it. `person` is who is
        logged in there: nobody else's sign-in is finished. This goes on when the browser leaves: the code serves once,
        and what it was redeemed for would be lost.
        """
        finishing = self._finish(parameters, provider=provider, person=person, browser=browser)
        return await asyncio.shield(self._background.start(finishing))

    async def on_connected(self, connected: ConnectedAccount) -> None:
        """Tell of a connected account, list what it opens, and let waiting calls go on."""
        told = {"user": str(connected.person)}
        self._emitter.emit_source(connected.provider, EventCode.ACCOUNT_CONNECTED, told)
        self._background.start(self._list_anew(connected))
        await self._waiting.go_on(connected, self._desk)

    async def resume_waiting(self, desk: PendingActions) -> None:
        """Let calls go on whose account was connected elsewhere, or by a process that then died."""
        await self._waiting.sweep(desk)

    async def disconnect(self, provider: str, person: Principal) -> bool | None:
        """Forget an account and tell its issuer; whether that was heard, None when there was none."""
        heard = await self.accounts.disconnect(self.consents.service(provider), person)
        if heard is not None:
            self._emitter.emit_source(provider, EventCode.ACCOUNT_DISCONNECTED, {"user": str(person), "heard": heard})
        return heard

    async def forget(self, person: Principal) -> dict[str, int]:
        """Remove all that is kept of a person, after telling every issuer."""
        await self.consents.forget(person)
        for provider in self.consents.services:
            await self.disconnect(provider, person)
        return dict(await self._store.forget(person))

    async def close(self) -> None:
        """Wait for renewals and close every connection."""
        await self.accounts.close()

    async def _finish(
        self, parameters: Mapping[str, str], *, provider: str, person: Principal, browser: str
    ) -> ConnectedAccount:
        try:
            connected = await self.consents.finish(parameters, provider=provider, person=person, browser=browser)
        except ToolError as error:
            error.conceal(self._redactor.message)  # an issuer may repeat what it was sent
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
        """What a source of a service was told when it was not let in."""
        names = [name for name, credentials in self._credentials.items() if credentials.service.provider == provider]
        heard = [source.refusal for name in names if isinstance(source := self._source(name), PersonalSource)]
        return next((refused for refused in heard if refused is not None), None)

    async def _list_anew(self, connected: ConnectedAccount) -> None:
        for name, credentials in self._credentials.items():
            source = self._source(name)
            if credentials.service.provider == connected.provider and isinstance(source, PersonalSource):
                credential = await credentials.credential_for(connected.person)
                if credential is not None:
                    await _quietly(source, credential)


def _check_addresses(settings: AccountSettings) -> None:
    """Browsers bring a cookie back only to where they got it, whatever the port."""
    start, back = (urlsplit(url or "") for url in (settings.public_url, settings.redirect_uri))
    if start.netloc and back.netloc and (start.scheme, start.hostname) != (back.scheme, back.hostname):
        raise ConfigError(
            "accounts.public_url and accounts.redirect_uri must have the same scheme and host: a browser that begins "
            f"at {start.scheme}://{start.hostname} is not known again at {back.scheme}://{back.hostname}"
        )


async def _quietly(source: PersonalSource, credential: Any) -> None:
    try:
        await source.list_for(credential)
    except ToolError:
        return  # the calls themselves will tell what is wrong
