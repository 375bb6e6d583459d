"""Accounts of people at services: look up, store, refresh without races, and revoke their tokens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from toolpost.auth.issuer_registry import IssuerBinding, IssuerRegistry
from toolpost.auth.keys import UNREADABLE
from toolpost.auth.oauth.flow import CLIENT_REFUSED, run_flow
from toolpost.auth.oauth.grants import (
    GrantRevoked,
    RefreshedTokens,
    RefreshOutcome,
    RefreshUnknown,
    TokenSet,
    refresh,
    revoke,
)
from toolpost.auth.oauth.metadata import ServerMetadata, find_resource
from toolpost.auth.oauth.records import pack_record, unpack_record
from toolpost.contracts.errors import (
    StoreError,
    ToolAuthError,
    ToolConnectionError,
    ToolError,
    ToolServerError,
    ToolTimeoutError,
)
from toolpost.contracts.expiring_secret import expiring
from toolpost.contracts.storage import TokenKey, TokenRow, TokenRows, TokenStatus
from toolpost.wire.client import HttpClient

if TYPE_CHECKING:
    from toolpost.auth.oauth.client import Client
    from toolpost.auth.oauth.sign_in import AuthChallenge
    from toolpost.auth.services import Service
    from toolpost.contracts.principal import Principal

REFRESH_S = 30.0
SPARE_S = 15.0  # to write down what came of it
_LEARN_AGAIN_S = 1800.0
_FIRST_POLL_S = 0.01
_LAST_POLL_S = 0.2
_RETAKE_S = 1.0
_WRITE_AGAIN_S = (0.1, 0.5, 2.0)
R = TypeVar("R")
_log = logging.getLogger("toolpost.auth")
Learn = Callable[[set[str]], None]


class Accounts:
    """Accounts of people at services: look up, store, refresh and revoke tokens.

    `learn` is given every secret that is read or written, so that redaction knows it.
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
        self.learn = learn or _ignore_secrets
        self.issuers = IssuerRegistry(rows)
        self._vault = Vault(rows, learn=self.learn, clock=clock)
        self._refresher = TokenRefresher(self._vault)
        self._clients: dict[str, HttpClient] = {}

    async def current(self, service: Service, person: Principal, *, rejected: int | None = None) -> Current:
        """Return a person's account with valid tokens; `rejected` is a version that the resource no longer accepts."""
        needed = ConsentNeeded(key=TokenKey(*person, service.provider, "", ""), reason="missing")
        for anew in (False, True):  # the person may have signed in at another process, and at another issuer
            for binding in await self._bindings(service, anew=anew):
                renew = partial(self._renew, service, binding)
                current = await self._refresher.current(binding.account_of(person), renew, rejected=rejected)
                if not isinstance(current, ConsentNeeded):
                    return current
                needed = needed if current.reason == "missing" else current
        return needed

    async def held(self, service: Service, person: Principal) -> Account | None:
        """Return the stored account of a person in any status."""
        keys = [binding.account_of(person) for binding in await self._bindings(service, anew=True)]
        accounts = [account for key in keys if (account := await self._vault.standing(key)) is not None]
        return max(accounts, key=lambda account: account.version, default=None)

    async def keep(
        self, service: Service, person: Principal, tokens: TokenSet, *, server: ServerMetadata, client: Client
    ) -> None:
        """Store the tokens of a consent and remove those of other issuers for the same service."""
        binding = IssuerBinding(provider=service.provider, server=server, client=client, resource=tokens.resource or "")
        await self.issuers.keep(binding)
        account = await self._vault.keep(binding.account_of(person), tokens)
        for other in await self.issuers.of(service.provider):
            if (key := other.account_of(person)) != account.key:
                await self.rows.remove(key)

    async def disconnect(self, service: Service, person: Principal) -> bool | None:
        """Remove a person's account and revoke its tokens.

        Return whether the issuer confirmed, None when there was no account.
        """
        revoked: list[bool] = []
        for binding in await self._bindings(service, anew=True):
            account = await self._take_out(binding.account_of(person))
            if account is not None:
                over = account.tokens is None and account.status == "revoked"
                revoked.append(over or await self._revoke(service, binding, account.tokens))
        return all(revoked) if revoked else None

    async def has_moved(self, service: Service, person: Principal, challenge: AuthChallenge) -> bool:
        """Return whether the server that refuses a person's tokens now names another issuer."""
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
        """Return the HTTP client for a service's issuer, within the network policy of the service."""
        client = self._clients.get(service.provider)
        if client is None:
            client = self._clients[service.provider] = HttpClient(service.network)
        return client

    async def close(self) -> None:
        """Wait for running refreshes and close every connection."""
        await self._refresher.close()
        for client in self._clients.values():
            await client.close()

    async def _bindings(self, service: Service, *, anew: bool) -> list[IssuerBinding]:
        bindings = await self.issuers.of(service.provider, anew=anew)
        return [current for binding in bindings if (current := binding.with_plan(service.plan)) is not None]

    async def _take_out(self, key: TokenKey) -> Account | None:
        """Remove an account and return its last version, also if it was refreshed in between."""
        while (account := await self._vault.standing(key)) is not None:
            if await self.rows.remove(key, version=account.version or None):  # one that does not open has no version
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
            return GrantRevoked("there are no tokens")
        asking = refresh(binding.server, binding.client, account.tokens, clock=self.clock)
        try:
            renewal = await run_flow(asking, self.client_for(service))
        except ToolAuthError as refused:
            if binding.client.origin != "dynamic" or refused.error_code != CLIENT_REFUSED:
                raise
            await self.issuers.forget_client(binding.client)
            return GrantRevoked("the issuer does not know this client any more")
        if isinstance(renewal, RefreshedTokens):
            return renewal._replace(revoke=partial(self._revoke, service, binding, renewal.tokens))
        return renewal


def _ignore_secrets(_: set[str]) -> None:
    """Ignore secrets where nothing redacts."""


class Account(Struct, frozen=True, kw_only=True):
    """A connected account: its key, version, status and tokens (None once they were revoked)."""

    key: TokenKey
    version: int
    status: TokenStatus
    tokens: TokenSet | None
    changed_at: float


class Vault:
    """Store token sets by tenant, user, issuer, resource and client.

    `learn` is given every secret that is read or written, and again while it is in use, so that redaction knows it. A
    row older than one that was seen before was put back by someone: its account is doubtful.
    """

    def __init__(
        self,
        rows: TokenRows,
        *,
        learn: Learn | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.rows = rows
        self.clock = clock
        self._learn = learn
        self._newest: dict[TokenKey, int] = {}
        self._learned: dict[TokenKey, tuple[int, float]] = {}
        self._damaged: set[TokenKey] = set()

    async def find(self, key: TokenKey) -> Account | None:
        """Return an account; StoreError when its row was moved here or changed."""
        row = await self.rows.get(key)
        return self.opened(row) if row else None

    async def standing(self, key: TokenKey) -> Account | None:
        """Return an account in any status; one whose row was moved or changed is doubtful and has no tokens."""
        try:
            return await self.find(key)
        except StoreError as error:
            if error.error_code != UNREADABLE:  # the store itself may be back in a moment
                raise
            if key not in self._damaged:  # it is looked at again and again
                self._damaged.add(key)
                _log.warning("the account of %s:%s at %r cannot be read: %s", key.tenant, key.user, key.issuer, error)
            return Account(key=key, version=0, status="doubtful", tokens=None, changed_at=0.0)

    async def keep(self, key: TokenKey, tokens: TokenSet) -> Account:
        """Store the tokens of a new consent in place of any earlier ones."""
        row = await self.rows.put(key, pack_record(tokens))
        self._newest.pop(key, None)  # What is kept now counts, even if the clock was set back.
        return self.opened(row)

    async def remove(self, account: Account) -> bool:
        """Remove an account; False when it has changed since it was read."""
        return await self.rows.remove(account.key, version=account.version)

    def opened(self, row: TokenRow) -> Account:
        """Return the account of a row."""
        newest = self._newest[row.key] = max(row.version, self._newest.get(row.key, 0))
        tokens = unpack_record(TokenSet, row.body) if row.body else None
        if tokens and self._learn:
            self._learn_secrets(self._learn, row, tokens)
        status = row.status if row.version == newest else "doubtful"
        return Account(key=row.key, version=row.version, status=status, tokens=tokens, changed_at=row.changed_at)

    def _learn_secrets(self, learn: Learn, row: TokenRow, tokens: TokenSet) -> None:
        """Give secrets to redaction: each version when it is first seen, and again while it is in use."""
        now = self.clock()
        version, since = self._learned.get(row.key, (0, 0.0))
        if version != row.version or not since <= now < since + _LEARN_AGAIN_S:
            learn(expiring(tokens.secrets, until=tokens.expires_at, now=now))
            self._learned[row.key] = (row.version, now)


# An error of ours that it raises means that nothing was used up, but for time that ran out, a connection that broke
# after sending and a server that failed. Whatever else it raises says nothing, so the outcome is unknown.
Refresh: TypeAlias = Callable[[Account], Awaitable[RefreshOutcome]]


class ConsentNeeded(Struct, frozen=True, kw_only=True):
    """The person must connect the account, for the first time or again."""

    key: TokenKey
    reason: Literal["missing", "expired", "doubtful", "revoked"]


Current: TypeAlias = Account | ConsentNeeded


class _RefreshKey(NamedTuple):
    loop: asyncio.AbstractEventLoop
    key: TokenKey
    version: int


class TokenRefresher:
    """Return valid tokens of accounts, and refresh those that expired.

    `refresh_s` is how long the issuer may take. A refresh that started goes on when those who wait for it are
    cancelled; `close` waits for it and must come before the store's.
    """

    def __init__(self, vault: Vault, *, refresh_s: float = REFRESH_S) -> None:
        self._vault = vault
        self._refresh_s = refresh_s
        self._lease_s = refresh_s + SPARE_S
        self._running: dict[_RefreshKey, asyncio.Task[Current]] = {}

    async def current(self, key: TokenKey, refresh: Refresh, *, rejected: int | None = None) -> Current:
        """Return the account with valid tokens; `rejected` is a version that the resource no longer accepts."""
        account = await self._vault.standing(key)
        if account is None:
            return ConsentNeeded(key=key, reason="missing")
        if account.status != "live" or account.tokens is None:
            return _consent(account)
        if account.version != rejected and account.tokens.is_fresh(self._vault.clock()):
            return account
        if account.tokens.refresh_token is None:
            return ConsentNeeded(key=key, reason="expired")
        return await asyncio.shield(self._start(account, refresh))

    async def close(self) -> None:
        """Wait for running refreshes; each has a deadline."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(task for key, task in self._running.items() if key.loop is loop), return_exceptions=True)

    def _start(self, account: Account, refresh: Refresh) -> asyncio.Task[Current]:
        """Return the one refresh of this version on this event loop."""
        key = _RefreshKey(asyncio.get_running_loop(), account.key, account.version)
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.ensure_future(self._refresh(account, refresh))

            def forget(ended: asyncio.Task[Current]) -> None:
                del self._running[key]
                if not ended.cancelled():
                    ended.exception()  # Those who waited may be gone; then nobody else looks at it.

            task.add_done_callback(forget)
        return task

    async def _refresh(self, account: Account, refresh: Refresh) -> Current:
        holder = secrets.token_hex(16)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 2 * self._lease_s
        while loop.time() < deadline:
            row = await self._vault.rows.take(account.key, account.version, holder=holder, lease_s=self._lease_s)
            if row is None:
                return ConsentNeeded(key=account.key, reason="missing")
            if row.status != "live" or row.version != account.version:
                return self._adopt(row)
            if row.holder == holder:
                return await self._refresh_as_holder(account, refresh, holder)
            await self._wait_for_change(row)
        message = f"the tokens of {account.key.issuer!r} are being renewed by another process, which takes too long"
        raise ToolTimeoutError(message)

    async def _wait_for_change(self, row: TokenRow) -> None:
        """Wait until the row changes, but not for long: only taking the lease notices that its holder died."""
        poll_s, waited = _FIRST_POLL_S, 0.0
        while waited < _RETAKE_S:
            await asyncio.sleep(poll_s)
            if await self._vault.rows.get(row.key) != row:
                return
            waited += poll_s
            poll_s = min(poll_s * 1.5, _LAST_POLL_S)

    async def _refresh_as_holder(self, account: Account, refresh: Refresh, holder: str) -> Current:
        try:
            outcome = await self._ask(account, refresh)
        except asyncio.CancelledError:
            rows, key, version = self._vault.rows, account.key, account.version
            with contextlib.suppress(StoreError):  # Then the lease ends by itself, with the same doubt.
                await asyncio.shield(rows.settle(key, version, holder=holder, status="doubtful"))
            raise
        match outcome:
            case RefreshedTokens(tokens, revoke):
                return await self._settle(account, holder, tokens=tokens, revoke=revoke)
            case GrantRevoked():
                return await self._settle(account, holder, status="revoked")
            case RefreshUnknown(reason):
                _log.warning("what came of renewing tokens of %r is unknown: %s", account.key.issuer, reason)
                return await self._settle(account, holder, status="doubtful")
            case ToolError():
                await self._settle(account, holder)
                raise outcome

    async def _ask(self, account: Account, refresh: Refresh) -> RefreshOutcome | ToolError:
        try:
            async with asyncio.timeout(self._refresh_s):
                return await refresh(account)
        except TimeoutError:
            return RefreshUnknown(f"no answer within {self._refresh_s:g} s")
        except (ToolTimeoutError, ToolServerError) as error:
            return RefreshUnknown(type(error).__name__)
        except ToolError as error:
            lost = isinstance(error, ToolConnectionError) and error.sent
            return RefreshUnknown("the connection broke") if lost else error
        except Exception as error:  # noqa: BLE001 - foreign code; whatever it was, the token may have been used up
            return RefreshUnknown(type(error).__name__)

    async def _settle(
        self,
        account: Account,
        holder: str,
        *,
        tokens: TokenSet | None = None,
        revoke: Callable[[], Awaitable[object]] | None = None,
        status: TokenStatus = "live",
    ) -> Current:
        """Write the outcome of a refresh and end the lease."""
        body = pack_record(tokens) if tokens else None
        rows, key, version = self._vault.rows, account.key, account.version
        row = await _with_retries(lambda: rows.settle(key, version, holder=holder, body=body, status=status))
        row = row or await rows.get(key)  # The person connected anew, or was forgotten, meanwhile.
        if row is not None:
            return self._adopt(row)
        # Only tokens of an account that is gone are revoked: to revoke those of one that was connected anew meanwhile
        # would revoke its new ones too, at issuers that know one grant for each person.
        if revoke is not None:
            await revoke()
        return ConsentNeeded(key=key, reason="missing")

    def _adopt(self, row: TokenRow) -> Current:
        account = self._vault.opened(row)
        return account if account.status == "live" and account.tokens else _consent(account)


async def _with_retries(write: Callable[[], Awaitable[R]]) -> R:
    """Write and try again on StoreError: new tokens that are not stored are lost."""
    for pause in _WRITE_AGAIN_S:
        try:
            return await write()
        except StoreError:
            await asyncio.sleep(pause)
    return await write()


def _consent(account: Account) -> ConsentNeeded:
    return ConsentNeeded(key=account.key, reason="revoked" if account.status == "revoked" else "doubtful")
