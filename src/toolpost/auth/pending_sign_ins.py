"""Pending sign-ins: stored until their callback arrives, then exchanged for tokens exactly once."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from toolpost.auth.issuer_registry import PROGRAM, program_key
from toolpost.auth.oauth.authorization import Transaction, exchange_code, read_callback
from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.flow import CLIENT_REFUSED, Clock, problem_behind, run_flow
from toolpost.auth.oauth.records import pack_record, unpack_record
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.storage import TokenRow, TokenRows
    from toolpost.wire.client import HttpClient

_MOST = 100_000
# RFC 6749 section 5.2: temporary errors. The code was not checked and may be sent again.
_CODE_UNTOUCHED = frozenset({"temporarily_unavailable", "server_error"})


class PendingSignIn(Struct, frozen=True, kw_only=True):
    """A transaction that waits for its callback; `invitation` is the digest of the invitation that it consumes."""

    transaction: Transaction
    invitation: str = ""
    version: int = 0  # of the row, so not part of its identity

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PendingSignIn):
            return NotImplemented
        return (self.transaction, self.invitation) == (other.transaction, other.invitation)

    def __hash__(self) -> int:
        return hash((self.transaction, self.invitation))


class PendingSignIns(Protocol):
    """Storage of pending sign-ins, shared by all processes that a callback may reach."""

    async def put(self, sign_in: PendingSignIn) -> None:
        """Store a sign-in under the digest of its state."""
        ...

    async def find(self, state: str) -> PendingSignIn | None:
        """Return the sign-in of a state without claiming it."""
        ...

    async def claim(self, sign_in: PendingSignIn) -> bool:
        """Delete a sign-in; return True for exactly one of several callers."""
        ...

    async def purge(self, before: float) -> int:
        """Delete sign-ins that expired at or before a time, and return their number."""
        ...


class MemorySignIns:
    """Pending sign-ins of this process; beyond `most`, the oldest are dropped."""

    def __init__(self, *, most: int = _MOST) -> None:
        self._most = most
        self._pending: dict[str, PendingSignIn] = {}

    def __len__(self) -> int:
        return len(self._pending)

    async def put(self, sign_in: PendingSignIn) -> None:
        self.add(sign_in)

    def add(self, sign_in: PendingSignIn) -> None:
        """Store a sign-in, for synchronous callers."""
        self._pending[digest(sign_in.transaction.state)] = sign_in
        while len(self._pending) > self._most:
            del self._pending[next(iter(self._pending))]

    async def find(self, state: str) -> PendingSignIn | None:
        return self._pending.get(digest(state))

    async def claim(self, sign_in: PendingSignIn) -> bool:
        return self._pending.pop(digest(sign_in.transaction.state), None) is not None

    async def purge(self, before: float) -> int:
        return self.drop_expired(before)

    def drop_expired(self, before: float) -> int:
        """Delete expired sign-ins, for synchronous callers."""
        expired = [name for name, one in self._pending.items() if one.transaction.expires <= before]
        for name in expired:
            del self._pending[name]
        return len(expired)


class EncryptedSignIns:
    """Pending sign-ins in the encrypted rows of a store, for every process that shares the store.

    Each `kind` of row is a separate set: a state of one cannot be redeemed in another.
    """

    def __init__(self, rows: TokenRows, *, kind: str = "sign-in") -> None:
        self._rows = rows
        self._kind = kind

    async def put(self, sign_in: PendingSignIn) -> None:
        body = {"transaction": pack_record(sign_in.transaction), "invitation": sign_in.invitation}
        await self._rows.put(program_key(self._kind, digest(sign_in.transaction.state)), body)

    async def find(self, state: str) -> PendingSignIn | None:
        row = await self._rows.get(program_key(self._kind, digest(state)))
        if row is None or not (record := _transaction_in(row)):
            return None
        transaction = unpack_record(Transaction, record)
        return PendingSignIn(transaction=transaction, invitation=row.body["invitation"], version=row.version)

    async def claim(self, sign_in: PendingSignIn) -> bool:
        """Delete a sign-in, unless another process has claimed it since it was read."""
        key = program_key(self._kind, digest(sign_in.transaction.state))
        return await self._rows.remove(key, version=sign_in.version)

    async def purge(self, before: float) -> int:
        """Delete expired sign-ins, and rows that cannot be decrypted."""
        rows = await self._rows.list(tenant=PROGRAM, user=self._kind)
        expired = [row for row in rows if float(_transaction_in(row).get("expires", 0.0)) <= before]
        return sum([await self._rows.remove(row.key, version=row.version) for row in expired])

    async def forget(self, person: Principal) -> None:
        """Delete all sign-ins of a user."""
        for row in await self._rows.list(tenant=PROGRAM, user=self._kind):
            caller = _transaction_in(row).get("caller", {})
            if (caller.get("tenant"), caller.get("user")) == person:
                await self._rows.remove(row.key, version=row.version)


async def find_sign_in(sign_ins: PendingSignIns, state: str) -> PendingSignIn:
    """Return the pending sign-in of a state; raise ToolAuthError if there is none."""
    pending = await sign_ins.find(state) if state else None
    if pending is None:
        raise _unknown_state()
    return pending


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

    An invalid callback does not claim the sign-in, so a forged one cannot break the sign-in of another user. If the
    exchange fails before the issuer has checked the code, the sign-in is stored again. `registered` replaces the stored
    client if its secret is not stored with the sign-in.
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
    """Return whether the issuer checked the code before the exchange failed: a code is valid once."""
    if not isinstance(failed, ToolAuthError):
        return False
    if failed.error_code == CLIENT_REFUSED:  # an operator can fix a client; a dynamic one is registered again
        return transaction.client.origin != "registered"
    problem = problem_behind(failed)
    return problem is None or problem.code not in _CODE_UNTOUCHED


def digest(secret: str) -> str:
    """Return the digest that a secret is stored under: a stolen table must not contain the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _unknown_state() -> ToolAuthError:
    return ToolAuthError("Invalid or expired OAuth state", code="oauth_state")


def _transaction_in(row: TokenRow) -> dict[str, Any]:
    """Return the stored transaction of a row; empty if the row cannot be decrypted or contains something else."""
    transaction: dict[str, Any] = row.body.get("transaction", {})
    return transaction
