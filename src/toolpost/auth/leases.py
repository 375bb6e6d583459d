"""Renewing tokens without races: one caller renews, the others of this and other processes adopt what it wrote.

Taking the lease is the intent to renew, written before anything is sent. Whoever finds a
lease without an end cannot know whether the refresh token was used up: asking the issuer
again could get all tokens of the person revoked, so a person is asked for consent instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from toolpost.auth.vault import Account, T, Vault
from toolpost.contracts.errors import StoreError, ToolConnectionError, ToolError, ToolServerError, ToolTimeoutError
from toolpost.contracts.tokens import TokenKey, TokenRow, TokenStatus

REFRESH_S = 30.0
SPARE_S = 15.0  # to write down what came of it
_FIRST_GLANCE_S = 0.01
_LAST_GLANCE_S = 0.2
_LOOK_AGAIN_S = 1.0
_WRITE_AGAIN_S = (0.1, 0.5, 2.0)

R = TypeVar("R")

_log = logging.getLogger("toolpost.auth")


class Refreshed(NamedTuple, Generic[T]):
    """New tokens; the old refresh token may be dead. `end` gives them back, should nobody want them any more."""

    tokens: T
    end: Callable[[], Awaitable[object]] | None = None


class Revoked(NamedTuple):
    """The grant is over; only the person can give a new one."""

    reason: str = ""


class Unknown(NamedTuple):
    """The request may have reached the issuer, and no answer that could be read came back."""

    reason: str = ""


Renewal: TypeAlias = Refreshed[T] | Revoked | Unknown
# An error of ours that it raises means that nothing was used up, but for time that ran out, a connection that broke
# after sending and a server that failed. Whatever else it raises says nothing, so the outcome is unknown.
Refresh: TypeAlias = Callable[[Account[T]], Awaitable[Renewal[T]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentNeeded:
    """Only the person can help: by connecting the account, for the first time or again."""

    key: TokenKey
    reason: Literal["missing", "expired", "doubtful", "revoked"]


Current: TypeAlias = Account[T] | ConsentNeeded


class _Flight(NamedTuple):
    loop: asyncio.AbstractEventLoop
    key: TokenKey
    version: int


class Renewer(Generic[T]):
    """Gives tokens that are good now, and renews them when they are not.

    `refresh_s` is how long the issuer may take. A renewal that began goes on when those
    who wait for it are cancelled; `close` waits for it, and comes before the store's.
    """

    def __init__(self, vault: Vault[T], *, refresh_s: float = REFRESH_S) -> None:
        self._vault = vault
        self._refresh_s = refresh_s
        self._lease_s = refresh_s + SPARE_S
        self._flights: dict[_Flight, asyncio.Task[Current[T]]] = {}

    async def current(self, key: TokenKey, refresh: Refresh[T], *, rejected: int | None = None) -> Current[T]:
        """The account with tokens that are good now; `rejected` is a version that the resource no longer takes."""
        account = await self._vault.standing(key)
        if account is None:
            return ConsentNeeded(key=key, reason="missing")
        if account.status != "live" or account.tokens is None:
            return _consent(account)
        if account.version != rejected and account.tokens.is_fresh(self._vault.clock()):
            return account
        if account.tokens.refresh_token is None:
            return ConsentNeeded(key=key, reason="expired")
        return await asyncio.shield(self._flight(account, refresh))

    async def close(self) -> None:
        """Wait for the renewals that run; each has a deadline."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(task for flight, task in self._flights.items() if flight.loop is loop), return_exceptions=True
        )

    def _flight(self, account: Account[T], refresh: Refresh[T]) -> asyncio.Task[Current[T]]:
        """The one renewal of this version on this loop."""
        flight = _Flight(asyncio.get_running_loop(), account.key, account.version)
        task = self._flights.get(flight)
        if task is None:
            task = self._flights[flight] = asyncio.ensure_future(self._renew(account, refresh))

            def landed(ended: asyncio.Task[Current[T]]) -> None:
                del self._flights[flight]
                if not ended.cancelled():
                    ended.exception()  # Those who waited may be gone; then nobody else looks at it.

            task.add_done_callback(landed)
        return task

    async def _renew(self, account: Account[T], refresh: Refresh[T]) -> Current[T]:
        holder = secrets.token_hex(16)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 2 * self._lease_s
        while loop.time() < deadline:
            row = await self._vault.rows.take(account.key, account.version, holder=holder, lease_s=self._lease_s)
            if row is None:
                return ConsentNeeded(key=account.key, reason="missing")
            if row.status != "live" or row.version != account.version:
                return self._adopted(row)
            if row.holder == holder:
                return await self._renew_as_holder(account, refresh, holder)
            await self._wait_for_change(row)
        said = f"the tokens of {account.key.issuer!r} are being renewed elsewhere and it takes too long; try again"
        raise ToolTimeoutError(said)

    async def _wait_for_change(self, seen: TokenRow) -> None:
        """Until the row changes, but not for long: only taking notices that its holder died."""
        glance, waited = _FIRST_GLANCE_S, 0.0
        while waited < _LOOK_AGAIN_S:
            await asyncio.sleep(glance)
            if await self._vault.rows.get(seen.key) != seen:
                return
            waited += glance
            glance = min(glance * 1.5, _LAST_GLANCE_S)

    async def _renew_as_holder(self, account: Account[T], refresh: Refresh[T], holder: str) -> Current[T]:
        try:
            renewal = await self._ask(account, refresh)
        except asyncio.CancelledError:
            rows, key, version = self._vault.rows, account.key, account.version
            with contextlib.suppress(StoreError):  # Then the lease ends by itself, with the same doubt.
                await asyncio.shield(rows.settle(key, version, holder=holder, status="doubtful"))
            raise
        match renewal:
            case Refreshed(tokens, end):
                return await self._settle(account, holder, tokens=tokens, end=end)
            case Revoked():
                return await self._settle(account, holder, status="revoked")
            case Unknown(reason):
                _log.warning("what came of renewing tokens of %r is unknown: %s", account.key.issuer, reason)
                return await self._settle(account, holder, status="doubtful")
            case ToolError():
                await self._settle(account, holder)
                raise renewal

    async def _ask(self, account: Account[T], refresh: Refresh[T]) -> Renewal[T] | ToolError:
        try:
            async with asyncio.timeout(self._refresh_s):
                return await refresh(account)
        except TimeoutError:
            return Unknown(f"no answer within {self._refresh_s:g} s")
        except (ToolTimeoutError, ToolServerError) as error:
            return Unknown(type(error).__name__)
        except ToolError as error:
            lost = isinstance(error, ToolConnectionError) and error.sent
            return Unknown("the connection broke") if lost else error
        except Exception as error:  # noqa: BLE001 - foreign code; whatever it was, the token may have been used up
            return Unknown(type(error).__name__)

    async def _settle(
        self,
        account: Account[T],
        holder: str,
        *,
        tokens: T | None = None,
        end: Callable[[], Awaitable[object]] | None = None,
        status: TokenStatus = "live",
    ) -> Current[T]:
        """Write down what came of it; patiently, because new tokens that are not kept are lost.

        Only those of an account that is gone are ended: to end those of one that was connected anew in the meantime
        would end its new ones too, at issuers that know one grant for each person.
        """
        body = self._vault.body(tokens) if tokens else None
        rows, key, version = self._vault.rows, account.key, account.version
        row = await _patiently(lambda: rows.settle(key, version, holder=holder, body=body, status=status))
        row = row or await rows.get(key)  # The person connected anew, or was forgotten, meanwhile.
        if row is not None:
            return self._adopted(row)
        if end is not None:
            await end()
        return ConsentNeeded(key=key, reason="missing")

    def _adopted(self, row: TokenRow) -> Current[T]:
        account = self._vault.opened(row)
        return account if account.status == "live" and account.tokens else _consent(account)


async def _patiently(write: Callable[[], Awaitable[R]]) -> R:
    for pause in _WRITE_AGAIN_S:
        try:
            return await write()
        except StoreError:
            await asyncio.sleep(pause)
    return await write()


def _consent(account: Account[Any]) -> ConsentNeeded:
    return ConsentNeeded(key=account.key, reason="revoked" if account.status == "revoked" else "doubtful")
