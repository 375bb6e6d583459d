"""Sign-ins that wait for their browser, found by their `state` and given out once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from toolpost.auth.bindings import PROGRAM, program_key
from toolpost.auth.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from toolpost.contracts.tokens import TokenKey, TokenRows

_KIND = "sign-in"
_MOST = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSignIn:
    """Whose sign-in it is, where, since when, and what proves to the server that it was begun here (RFC 7636)."""

    user_id: str
    trace_id: str
    provider: str
    created_at: float
    verifier: Secret | None = None


class PendingSignIns(Protocol):
    """Where sign-ins wait; shared by all processes that a callback may reach."""

    async def put(self, state: str, sign_in: PendingSignIn) -> None:
        """Keep a sign-in."""
        ...

    async def claim(self, state: str) -> PendingSignIn | None:
        """Take a sign-in out, for exactly one claimant; None when there is none."""
        ...

    async def purge(self, before: float) -> int:
        """Forget those that were begun earlier; says how many."""
        ...


class MemorySignIns:
    """Sign-ins of this process; where there are too many, the oldest make room."""

    def __init__(self, *, most: int = _MOST) -> None:
        self._most = most
        self._waiting: dict[str, PendingSignIn] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def put(self, state: str, sign_in: PendingSignIn) -> None:
        """Keep a sign-in."""
        self._waiting[_digest(state)] = sign_in
        while len(self._waiting) > self._most:
            del self._waiting[next(iter(self._waiting))]

    async def claim(self, state: str) -> PendingSignIn | None:
        """Take a sign-in out."""
        return self._waiting.pop(_digest(state), None)

    async def purge(self, before: float) -> int:
        """Forget those that were begun earlier."""
        old = [name for name, sign_in in self._waiting.items() if sign_in.created_at < before]
        for name in old:
            del self._waiting[name]
        return len(old)


class SealedSignIns:
    """Sign-ins in the rows of a store, sealed, for every process that shares the store."""

    def __init__(self, rows: TokenRows) -> None:
        self._rows = rows

    async def put(self, state: str, sign_in: PendingSignIn) -> None:
        """Keep a sign-in."""
        body = {
            "user_id": sign_in.user_id,
            "trace_id": sign_in.trace_id,
            "provider": sign_in.provider,
            "created_at": sign_in.created_at,
            "verifier": sign_in.verifier.reveal() if sign_in.verifier else None,
        }
        await self._rows.put(_key(state), body)

    async def claim(self, state: str) -> PendingSignIn | None:
        """Take a sign-in out; of several who try at once, the one whose removal counts has it."""
        row = await self._rows.get(_key(state))
        if row is None or not row.body or not await self._rows.remove(row.key, version=row.version):
            return None
        return _read(row.body)

    async def purge(self, before: float) -> int:
        """Forget those that were begun earlier."""
        rows = await self._rows.list(tenant=PROGRAM, user=_KIND)
        old = [row for row in rows if float(row.body.get("created_at", 0.0)) < before]  # one that is damaged is old
        return sum([await self._rows.remove(row.key, version=row.version) for row in old])


def _key(state: str) -> TokenKey:
    return program_key(_KIND, _digest(state))


def _digest(state: str) -> str:
    """What a state is looked up by: a stolen table does not hold it."""
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()


def _read(body: Mapping[str, Any]) -> PendingSignIn:
    verifier = body["verifier"]
    return PendingSignIn(
        user_id=body["user_id"],
        trace_id=body["trace_id"],
        provider=body["provider"],
        created_at=float(body["created_at"]),
        verifier=Secret(verifier) if verifier else None,
    )
