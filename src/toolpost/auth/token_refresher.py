"""Refresh of expired tokens, exactly once per version in all processes that share the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from toolpost.auth.oauth.records import pack_record
from toolpost.auth.oauth.refresh import GrantRevoked, RefreshedTokens, RefreshOutcome, RefreshUnknown
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.vault import Account, Vault
from toolpost.contracts.errors import StoreError, ToolConnectionError, ToolError, ToolServerError, ToolTimeoutError
from toolpost.contracts.storage import TokenKey, TokenRow, TokenStatus

REFRESH_S = 30.0
SPARE_S = 15.0  # for storing the outcome
_FIRST_POLL_S = 0.01
_LAST_POLL_S = 0.2
_RETAKE_S = 1.0
_WRITE_AGAIN_S = (0.1, 0.5, 2.0)
R = TypeVar("R")
# If it raises a ToolError, the refresh token was not used, except for a timeout, a connection that broke after sending,
# and a server error. After those and any other exception the outcome is unknown.
Refresh: TypeAlias = Callable[[Account], Awaitable[RefreshOutcome]]
_log = logging.getLogger("toolpost.auth")


class ConsentNeeded(Struct, frozen=True, kw_only=True):
    """The user must connect the account, for the first time or again."""

    key: TokenKey
    reason: Literal["missing", "expired", "doubtful", "revoked"]


Current: TypeAlias = Account | ConsentNeeded


class _RefreshKey(NamedTuple):
    loop: asyncio.AbstractEventLoop
    key: TokenKey
    version: int


class TokenRefresher:
    """Return valid tokens of accounts, and refresh expired ones.

    `refresh_s` is the time limit of the issuer. A running refresh continues if its callers are cancelled; `close` waits
    for it, and must precede that of the store.
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
        """Return the only refresh of this version on this event loop."""
        key = _RefreshKey(asyncio.get_running_loop(), account.key, account.version)
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.ensure_future(self._refresh(account, refresh))

            def forget(ended: asyncio.Task[Current]) -> None:
                del self._running[key]
                if not ended.cancelled():
                    ended.exception()  # retrieved here, because all callers may be cancelled

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
        message = f"the tokens of {account.key.issuer!r} are being refreshed by another process, which takes too long"
        raise ToolTimeoutError(message)

    async def _wait_for_change(self, row: TokenRow) -> None:
        """Wait briefly until the row changes: only taking the lease detects that its holder was killed."""
        poll_s, waited = _FIRST_POLL_S, 0.0
        while waited < _RETAKE_S:
            await asyncio.sleep(poll_s)
            if await self._vault.rows.get(row.key) != row:
                return
            waited += poll_s
            poll_s = min(poll_s * 1.5, _LAST_POLL_S)

    async def _refresh_as_holder(self, account: Account, refresh: Refresh, holder: str) -> Current:
        try:
            outcome = await self._run(account, refresh)
        except asyncio.CancelledError:
            rows, key, version = self._vault.rows, account.key, account.version
            with contextlib.suppress(StoreError):  # then the lease expires, with the same result
                await asyncio.shield(rows.settle(key, version, holder=holder, status="doubtful"))
            raise
        match outcome:
            case RefreshedTokens(tokens, revoke):
                return await self._settle(account, holder, tokens=tokens, revoke=revoke)
            case GrantRevoked():
                return await self._settle(account, holder, status="revoked")
            case RefreshUnknown(reason):
                _log.warning("the outcome of refreshing tokens of %r is unknown: %s", account.key.issuer, reason)
                return await self._settle(account, holder, status="doubtful")
            case ToolError():
                await self._settle(account, holder)
                raise outcome

    async def _run(self, account: Account, refresh: Refresh) -> RefreshOutcome | ToolError:
        try:
            async with asyncio.timeout(self._refresh_s):
                return await refresh(account)
        except TimeoutError:
            return RefreshUnknown(f"no response within {self._refresh_s:g} s")
        except (ToolTimeoutError, ToolServerError) as error:
            return RefreshUnknown(type(error).__name__)
        except ToolError as error:
            lost = isinstance(error, ToolConnectionError) and error.sent
            return RefreshUnknown("the connection broke") if lost else error
        except Exception as error:  # noqa: BLE001 - foreign code; after any error the token may be used up
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
        """Store the outcome of a refresh and end the lease."""
        body = pack_record(tokens) if tokens else None
        rows, key, version = self._vault.rows, account.key, account.version
        row = await _with_retries(lambda: rows.settle(key, version, holder=holder, body=body, status=status))
        row = row or await rows.get(key)  # the user has reconnected, or was erased
        if row is not None:
            return self._adopt(row)
        # Revoke only if the account no longer exists. If the user has reconnected in the meantime, some issuers keep a
        # single grant per user, and revoking the old token would also revoke the new one.
        if revoke is not None:
            await revoke()
        return ConsentNeeded(key=key, reason="missing")

    def _adopt(self, row: TokenRow) -> Current:
        account = self._vault.opened(row)
        return account if account.status == "live" and account.tokens else _consent(account)


async def _with_retries(write: Callable[[], Awaitable[R]]) -> R:
    """Write, and retry on StoreError: new tokens that are not stored are lost."""
    for pause in _WRITE_AGAIN_S:
        try:
            return await write()
        except StoreError:
            await asyncio.sleep(pause)
    return await write()


def _consent(account: Account) -> ConsentNeeded:
    return ConsentNeeded(key=account.key, reason="revoked" if account.status == "revoked" else "doubtful")
