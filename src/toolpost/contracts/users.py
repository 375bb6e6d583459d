"""Users of a store, with what it contains of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from toolpost.contracts.principal import Principal


class UserSummary(Struct, frozen=True, kw_only=True):
    """A user who made a call, or who has a key, an account at a service or an open pending action.

    `last_run_at` is the time at which the user's last run began.
    """

    principal: Principal
    last_run_at: float | None = None
    keys: int = 0
    accounts: int = 0
    pending: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON data."""
        return {
            "user": str(self.principal),
            "tenant": self.principal.tenant,
            "last_run_at": self.last_run_at,
            "keys": self.keys,
            "accounts": self.accounts,
            "pending": self.pending,
        }


class TenantSummary(Struct, frozen=True, kw_only=True):
    """A tenant, with the sums of its users."""

    tenant: str
    users: int = 0
    last_run_at: float | None = None
    keys: int = 0
    accounts: int = 0
    pending: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON data."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def sum_tenants(users: Iterable[UserSummary]) -> list[TenantSummary]:
    """Return the tenants of users, by name."""
    by_tenant: dict[str, list[UserSummary]] = {}
    for user in users:
        by_tenant.setdefault(user.principal.tenant, []).append(user)
    return [_sum(tenant, of_tenant) for tenant, of_tenant in sorted(by_tenant.items())]


def _sum(tenant: str, users: list[UserSummary]) -> TenantSummary:
    times = [user.last_run_at for user in users if user.last_run_at is not None]
    return TenantSummary(
        tenant=tenant,
        users=len(users),
        last_run_at=max(times, default=None),
        keys=sum(user.keys for user in users),
        accounts=sum(user.accounts for user in users),
        pending=sum(user.pending for user in users),
    )
