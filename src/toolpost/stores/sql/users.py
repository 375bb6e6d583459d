"""The users of a store."""

from __future__ import annotations

from collections.abc import Mapping

from toolpost.contracts.principal import Principal
from toolpost.contracts.users import UserSummary
from toolpost.stores.sql.database import Statements, where

# Two steps of an index for each user, instead of a row for each run.
_OF_ONE = "SELECT min(tenant) FROM runs WHERE tenant = :tenant"
_OF_ALL = """
SELECT min(tenant) FROM runs
UNION ALL SELECT (SELECT min(tenant) FROM runs WHERE runs.tenant > tenants.tenant) FROM tenants
WHERE tenants.tenant IS NOT NULL
"""
_WITH_RUNS = """
WITH RECURSIVE tenants(tenant) AS ({tenants}), names(tenant, "user") AS (
    SELECT tenant, (SELECT min("user") FROM runs WHERE runs.tenant = tenants.tenant) FROM tenants
    UNION ALL SELECT tenant, (
        SELECT min("user") FROM runs WHERE runs.tenant = names.tenant AND runs."user" > names."user"
    ) FROM names WHERE names."user" IS NOT NULL
)
SELECT tenant, "user" FROM names WHERE "user" IS NOT NULL AND "user" <> ''
"""
# Notices of sources and of the catalog have no call; there are few such runs.
_LAST_RUN = """
SELECT started_at FROM runs WHERE tenant = :tenant AND "user" = :user AND root_call <> '' ORDER BY nr DESC LIMIT 1
"""
_KEYS = 'SELECT tenant, "user", count(*) FROM caller_keys WHERE TRUE{} GROUP BY tenant, "user"'
_ACCOUNTS = """SELECT tenant, "user", count(*) FROM tokens WHERE status <> 'revoked'{} GROUP BY tenant, "user" """
_PENDING = """SELECT tenant, "user", count(*) FROM pending WHERE status = 'open'{} GROUP BY tenant, "user" """


def list_users(db: Statements, *, tenant: str | None) -> list[UserSummary]:
    """Return the users of a tenant, or of all, by name."""
    sql = _WITH_RUNS.format(tenants=_OF_ALL if tenant is None else _OF_ONE)
    named = [Principal(*row) for row in db.execute(sql, {"tenant": tenant})]
    last = {one: at for one in named if (at := _last_run(db, one)) is not None}
    keys, accounts, pending = (_count(db, sql, tenant) for sql in (_KEYS, _ACCOUNTS, _PENDING))
    return [
        UserSummary(
            principal=one,
            last_run_at=last.get(one),
            keys=keys.get(one, 0),
            accounts=accounts.get(one, 0),
            pending=pending.get(one, 0),
        )
        for one in sorted({*last, *keys, *accounts, *pending})
    ]


def _count(db: Statements, sql: str, tenant: str | None) -> Mapping[Principal, int]:
    rows = db.execute(sql.format(where(tenant=tenant)), {"tenant": tenant})
    return {Principal(of, user): count for of, user, count in rows if user}


def _last_run(db: Statements, user: Principal) -> float | None:
    row = db.execute(_LAST_RUN, {"tenant": user.tenant, "user": user.user}).fetchone()
    return None if row is None else row[0]
