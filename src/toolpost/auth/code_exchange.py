"""Pending sign-ins and the exchange of their authorization code for tokens.

A pending sign-in is an authorization transaction that waits for its callback, found by its `state`. Exactly one
callback claims it; whether a failed exchange spent the code decides if the same callback may be tried again.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from toolpost.auth.issuer_registry import PROGRAM, program_key
from toolpost.auth.oauth.authorization import Transaction, exchange_code, read_callback
from toolpost.auth.oauth.flow import CLIENT_REFUSED, Clock, problem_behind, run_flow
from toolpost.auth.oauth.records import pack_record, unpack_record
from toolpost.contracts.errors import ToolAuthError, ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.auth.oauth.client import Client
    from toolpost.auth.oauth.tokens import TokenSet
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.storage import TokenRow, TokenRows
    from toolpost.wire.client import HttpClient

_MOST = 100_000
# RFC 6749 section 5.2: errors about the client or the moment. The code was not looked at and may be sent again.
_CODE_UNTOUCHED = frozenset({"temporarily_unavailable", "server_error"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSignIn:
    """A transaction that waits for its callback; `invitation` is the digest of the invitation that it uses up."""

    transaction: Transaction
    invitation: str = ""
    version: int = field(default=0, compare=False)


class PendingSignIns(Protocol):
    """Storage of pending sign-ins, shared by all processes that a callback may reach."""

    async def put(self, sign_in: PendingSignIn) -> None:
        """Store a sign-in under the digest of its state."""
        ...

    async def find(self, state: str) -> PendingSignIn | None:
        """Return the sign-in of a state without claiming it."""
        ...

    async def claim(self, sign_in: PendingSignIn) -> bool:
        """Remove a sign-in; True for exactly one of several callers."""
        ...

    async def purge(self, before: float) -> int:
        """Remove sign-ins that expired at or before a time, and return how many."""
        ...


class MemorySignIns:
    """Pending sign-ins of this process; beyond `most` the oldest are dropped."""

    def __init__(self, *, most: int = _MOST) -> None:
        self._most = most
        self._pending: dict[str, PendingSignIn] = {}

    def __len__(self) -> int:
        return len(self._pending)

    async def put(self, sign_in: PendingSignIn) -> None:
        self.add(sign_in)

    def add(self, sign_in: PendingSignIn) -> None:
        """Store a sign-in, where nothing can be awaited."""
        self._pending[digest(sign_in.transaction.state)] = sign_in
        while len(self._pending) > self._most:
            del self._pending[next(iter(self._pending))]

    async def find(self, state: str) -> PendingSignIn | None:
        return self._pending.get(digest(state))

    async def claim(self, sign_in: PendingSignIn) -> bool:
        """Remove a sign-in."""
        return self._pending.pop(digest(sign_in.transaction.state), None) is not None

    async def purge(self, before: float) -> int:
        """Remove expired sign-ins."""
        expired = [name for name, one in self._pending.items() if one.transaction.expires <= before]
        for name in expired:
            del self._pending[name]
        return len(expired)


class SealedSignIns:
    """Pending sign-ins in the sealed rows of a store, for every process that shares the store.

    Each `kind` of row is its own set: a state of one cannot be redeemed at another.
    """

    def __init__(self, rows: TokenRows, *, kind: str = "sign-in") -> None:
        self._rows = rows
        self._kind = kind

    async def put(self, sign_in: PendingSignIn) -> None:
        body = {"transaction": pack_record(sign_in.transaction), "invitation": sign_in.invitation}
        await self._rows.put(program_key(self._kind, digest(sign_in.transaction.state)), body)

    async def find(self, state: str) -> PendingSignIn | None:
        row = await self._rows.get(program_key(self._kind, digest(state)))
        if row is None or not (written := _transaction_in(row)):
            return None
        transaction = unpack_record(Transaction, written)
        return PendingSignIn(transaction=transaction, invitation=row.body["invitation"], version=row.version)

    async def claim(self, sign_in: PendingSignIn) -> bool:
        """Remove a sign-in, unless another process claimed it since it was read."""
        key = program_key(self._kind, digest(sign_in.transaction.state))
        return await self._rows.remove(key, version=sign_in.version)

    async def purge(self, before: float) -> int:
        """Remove expired sign-ins, and rows that do not open."""
        rows = await self._rows.list(tenant=PROGRAM, user=self._kind)
        expired = [row for row in rows if float(_transaction_in(row).get("expires", 0.0)) <= before]
        return sum([await self._rows.remove(row.key, version=row.version) for row in expired])

    async def forget(self, person: Principal) -> None:
        """Remove all sign-ins of a person."""
        for row in await self._rows.list(tenant=PROGRAM, user=self._kind):
            caller = _transaction_in(row).get("caller", {})
            if (caller.get("tenant"), caller.get("user")) == person:
                await self._rows.remove(row.key, version=row.version)


async def find_sign_in(sign_ins: PendingSignIns, state: str) -> PendingSignIn:
    """Return the pending sign-in of a state; ToolAuthError when there is none."""
    found = await sign_ins.find(state) if state else None
    if found is None:
        raise _unknown_state()
    return found


async def redeem(
    sign_ins: PendingSignIns,
    sign_in: PendingSignIn,
    parameters: Mapping[str, str],
    *,
    client: HttpClient,
    clock: Clock,
    browser: str = "",
    registered: Client | None = None,
) -> TokenSet:
    """Verify a callback, claim its sign-in and exchange the code for tokens.

    A callback that is not right in everything claims nothing, so that nobody can spoil another's sign-in. If the
    exchange fails before the issuer looked at the code, the sign-in is put back. `registered` takes the place of the
    stored client, where its secret is not stored with the sign-in.
    """
    transaction = sign_in.transaction
    code = read_callback(transaction, parameters, browser=browser, clock=clock)
    if not await sign_ins.claim(sign_in):
        raise _unknown_state()  # another callback with the same state was faster
    try:
        exchanged = transaction if registered is None else replace(transaction, client=registered)
        return await run_flow(exchange_code(exchanged, code, clock=clock), client)
    except (ToolError, asyncio.CancelledError) as failed:
        if not is_code_spent(failed, transaction):
            await sign_ins.put(sign_in)
        raise


def is_code_spent(failed: BaseException, transaction: Transaction) -> bool:
    """Return whether the issuer looked at the code before the exchange failed: a code serves once."""
    if not isinstance(failed, ToolAuthError):
        return False
    if failed.error_code == CLIENT_REFUSED:  # an operator can correct a client; a dynamic one is registered anew
        return transaction.client.origin != "registered"
    problem = problem_behind(failed)
    return problem is None or problem.code not in _CODE_UNTOUCHED


def digest(secret: str) -> str:
    """Return what a secret is looked up by, so that a stolen table does not hold the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _unknown_state() -> ToolAuthError:
    return ToolAuthError("Invalid or expired OAuth state", code="oauth_state")


def _transaction_in(row: TokenRow) -> dict[str, Any]:
    """Return the stored transaction of a row; empty where the row does not open or holds something else."""
    transaction: dict[str, Any] = row.body.get("transaction", {})
    return transaction
