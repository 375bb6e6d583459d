"""Kept tokens: whose they are and for what, how they stand, and who renews them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

TokenStatus = Literal["live", "doubtful", "revoked"]


class TokenKey(NamedTuple):
    """Whose tokens, and for what; they open for this identity only."""

    tenant: str
    user: str
    issuer: str
    resource: str
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """What is kept under one key; `body` is JSON, sealed at rest to the key and the version.

    A version belongs to one body and is never used again. A `doubtful` row was being
    renewed when what came of it got lost; a `revoked` one has no body any more.
    `holder` renews it, until `until` at the latest.
    """

    key: TokenKey
    version: int
    status: TokenStatus
    body: Mapping[str, Any] = field(repr=False)
    changed_at: float
    holder: str = ""
    until: float = 0.0


class TokenRows(Protocol):
    """Rows of tokens; each change compares the version, so that none is built on an older one."""

    async def get(self, key: TokenKey) -> TokenRow | None:
        """One row; StoreError when it was moved here or changed."""
        ...

    async def list(self, *, tenant: str | None = None, user: str | None = None) -> list[TokenRow]:
        """Rows in the order of their keys."""
        ...

    async def put(self, key: TokenKey, body: Mapping[str, Any]) -> TokenRow:
        """Keep a live row whatever stood there: doubts and leases end."""
        ...

    async def swap(self, key: TokenKey, version: int, body: Mapping[str, Any]) -> TokenRow | None:
        """Keep a live row in place of this version; None when that is not what stands there."""
        ...

    async def take(self, key: TokenKey, version: int, *, holder: str, lease_s: float) -> TokenRow | None:
        """Lease a live row of this version that nobody holds, and give the row as it then stands.

        Taking is the intent to renew, durable when this returns. A lease whose holder
        is dead or late may have been used: then the row becomes doubtful. None when
        there is no row.
        """
        ...

    async def settle(
        self,
        key: TokenKey,
        version: int,
        *,
        holder: str,
        body: Mapping[str, Any] | None = None,
        status: TokenStatus = "live",
    ) -> TokenRow | None:
        """End a lease: with the new body, or without one as the status says; None when it was no longer the holder's.

        A holder who comes late with a body still gets it in, unless the row was put anew.
        """
        ...

    async def remove(self, key: TokenKey, *, version: int | None = None) -> bool:
        """Remove a row, of this version if one is given; whether it was there."""
        ...
