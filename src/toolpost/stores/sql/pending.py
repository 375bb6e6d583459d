"""Pending actions: stored encrypted, claimed by one atomic statement, never answered twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from toolpost.contracts.errors import StoreError, TakenOverError
from toolpost.contracts.jobs import Job
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction, PendingStatus, Question
from toolpost.stores.changes import Changes
from toolpost.stores.pending_rows import COLUMNS, STATUS_COLUMNS, PendingRows, Row, first_status
from toolpost.stores.sql.database import SharedDatabase, SQLConnection, where
from toolpost.stores.sql.jobs import add_continuation
from toolpost.stores.topics import JOBS, pending_topic

Actions: TypeAlias = list[PendingAction]  # The store's own `list` hides the builtin one.
Rows: TypeAlias = list[Row]
_ADD = f"""
INSERT INTO pending ({STATUS_COLUMNS}, action, mac, same_call) VALUES (
    :id, :call_id, :run_id, :tenant, :user, :status, :created_at, :expires_at, :answered_by, :answered_at,
    :action, :mac, :same_call
) ON CONFLICT DO NOTHING
"""  # noqa: S608 - constants, here and below
_END_INTENT = "DELETE FROM journal WHERE call_id = :call_id AND step = '' AND result IS NULL"
_STATUS = f"SELECT {STATUS_COLUMNS}, mac FROM pending WHERE id = ANY(:ids)"  # noqa: S608
_RENEW = "UPDATE pending SET action = :action WHERE id = :id"
_SET_MAC = "UPDATE pending SET mac = :mac WHERE id = :id"
_WAITING = f"""
SELECT {STATUS_COLUMNS}, mac FROM pending WHERE same_call = :same_call AND status = 'open' AND expires_at > :at
ORDER BY created_at, rowid
"""  # noqa: S608
_GET = f"SELECT {COLUMNS} FROM pending WHERE id = :id"  # noqa: S608
_LIST = f"SELECT {COLUMNS} FROM pending WHERE TRUE"  # noqa: S608
_BEFORE = " AND (created_at, rowid) < (SELECT created_at, rowid FROM pending WHERE id = :before{})"
_NEWEST_FIRST = " ORDER BY created_at DESC, rowid DESC LIMIT :limit"
# The process that claims an action owns it until the action is settled.
# A claim of a process that has ended is adopted with the others, after the intent of its call was handled.
_TAKE_CLAIM = f"""
UPDATE pending SET owner = :owner WHERE id = :id AND status = 'claimed' AND owner IS NULL RETURNING {COLUMNS}
"""  # noqa: S608
_CLAIMANTS = "SELECT DISTINCT owner FROM pending WHERE owner IS NOT NULL"
# Only after the intent of the call has been handled: of two processes that recover concurrently, one could otherwise
# create a question about the call while the other runs it again.
_ADOPT = f"""
UPDATE pending SET owner = :owner WHERE owner = ANY(:dead) AND NOT EXISTS (
    SELECT 1 FROM journal WHERE journal.call_id = pending.call_id AND journal.step = '' AND journal.result IS NULL
) RETURNING {COLUMNS}
"""  # noqa: S608


class _RowChange(NamedTuple):
    """A change of rows: the assignments and the condition of one atomic UPDATE."""

    assignments: str
    condition: str


_CLAIM = _RowChange(
    "status = 'claimed', answer = :answer, answered_by = :by, answered_at = :at, owner = :owner",
    "id = :id AND status = 'open' AND expires_at > :at",
)
# Between machines, a process may have lost its claim to another.
_SETTLE = _RowChange(
    "status = :status, outcome = :outcome, owner = NULL",
    "id = :id AND status IN ('claimed', :status) AND owner = :owner",
)
_REOPEN = _RowChange(
    "status = 'open', answer = NULL, answered_by = NULL, answered_at = NULL, owner = NULL",
    "id = :id AND status = 'claimed' AND owner = :owner",
)
_EXPIRE = _RowChange("status = 'expired', owner = :owner", "status = 'open' AND expires_at <= :at")
# A claimed action without an owner is left to a job, which has not begun.
_CANCEL = _RowChange(
    "status = 'cancelled', owner = :owner",
    "(status = 'open' OR (status = 'claimed' AND owner IS NULL)) AND (call_id = :id OR run_id = :id)",
)
_CANCEL_OF_TENANT = _CANCEL._replace(condition=f"{_CANCEL.condition} AND tenant = :tenant")


class SQLPendingStore:
    """Pending actions, encrypted; their status is in columns that statements compare, with a MAC over them.

    A list skips and logs rows that cannot be decrypted; `get` raises StoreError. An action with a status that was
    changed outside of Toolpost, such as one that was reopened, cannot be claimed.
    """

    def __init__(self, shared: SharedDatabase, changes: Changes) -> None:
        self._shared = shared
        self._changes = changes
        self._rows = PendingRows(shared.cipher, shared.key)

    async def add(self, action: PendingAction, *, unless_waiting: bool = False) -> PendingAction | None:
        status, encrypted = first_status(action), self._rows.encrypt_action(action)
        same_call = self._rows.call_mac(action.same_call)
        names = (name.strip(' "') for name in STATUS_COLUMNS.split(","))
        row = dict(zip(names, status, strict=True))
        row |= {"action": encrypted, "mac": self._rows.status_mac(status), "same_call": same_call}

        def work(db: SQLConnection) -> PendingAction | None:
            if unless_waiting and same_call is not None:
                db.lock(f"same call {same_call.hex()}")
            if action.owner and action.owner != self._shared.owner_id:
                raise TakenOverError(
                    f"question {action.id!r} was not asked: this process lost its lease after call {action.call_id!r} "
                    "began, so another process may have taken the call over"
                )
            db.execute(_END_INTENT, {"call_id": action.call_id})
            waiting = self._waiting(db, action.same_call, action.created_at) if unless_waiting else None
            if waiting is not None:
                return waiting
            if not db.execute(_ADD, row).rowcount:
                raise StoreError(f"question {action.id!r} exists already; every question needs a unique id")
            db.publish()
            return None

        return await self._shared.write(work)

    @property
    def may_wait(self) -> bool:
        return True  # another process may have stored one

    async def find_waiting(self, same_call: str, *, at: float) -> PendingAction | None:
        return await self._shared.read(lambda db: self._waiting(db, same_call, at))

    async def renew(self, pending_id: str, question: Question) -> None:
        def work(db: SQLConnection) -> None:
            row = db.execute(f"{_GET} FOR UPDATE", {"id": pending_id}).fetchone()
            if row is not None and row[3] == "open":
                encrypted = self._rows.encrypt_action(replace(self._rows.action(row), question=question))
                db.execute(
                    "UPDATE pending SET action = :action WHERE id = :id", {"action": encrypted, "id": pending_id}
                )

        await self._shared.write(work)

    def _waiting(self, db: SQLConnection, same_call: str, at: float) -> PendingAction | None:
        """Return the open action of the same call; rows that were changed from outside are skipped."""
        mac = self._rows.call_mac(same_call)
        rows = [] if mac is None else db.execute(_WAITING, {"same_call": mac, "at": at}).fetchall()
        ids = [row[0] for row in rows if self._rows.is_sound(row, strict=False)]
        found = (db.execute(_GET, {"id": id_}).fetchone() for id_ in ids)
        return next((action for action in self._rows.actions(found) if action.same_call == same_call), None)

    async def get(self, pending_id: str, *, tenant: str | None = None) -> PendingAction | None:
        sql = _GET + where(tenant=tenant)

        def work(db: SQLConnection) -> PendingAction | None:
            row = db.execute(sql, {"id": pending_id, "tenant": tenant}).fetchone()
            return None if row is None else self._rows.action(row)

        return await self._shared.read(work)

    async def list(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        status: PendingStatus | None = "open",
        call_id: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Actions:
        values: dict[str, Any] = {"tenant": tenant, "user": user, "status": status, "call_id": call_id}
        sql, older = _LIST + where(**values), _BEFORE.format(where(tenant=tenant))

        def work(db: SQLConnection) -> Actions:
            found, last = Actions(), before
            while (missing := limit - len(found)) > 0:  # rows that cannot be decrypted are skipped
                page = sql + (older if last is not None else "") + _NEWEST_FIRST
                rows = db.execute(page, {**values, "before": last, "limit": missing}).fetchall()
                found += self._rows.actions(rows)
                if len(rows) < missing:
                    break
                last = rows[-1][0]
            return found

        return await self._shared.read(work)

    async def wait(self, pending_ids: Sequence[str], known: object = None, *, timeout_s: float = 0.0) -> object:
        return await self._changes.wait_for([*map(pending_topic, pending_ids)], known, timeout_s=timeout_s)

    async def claim(
        self, pending_id: str, answer: Answer, *, by: str, at: float, then: Job | None = None
    ) -> PendingAction | None:
        owner = self._shared.owner_id if then is None else None

        def work(db: SQLConnection) -> PendingAction | None:
            asked_by = _asked_by(db, pending_id)
            encrypted = None if asked_by is None else self._rows.encrypt_answer(answer, pending_id, asked_by)
            values = {"answer": encrypted, "by": by, "at": at, "owner": owner, "id": pending_id}
            claimed = self._apply(db, _CLAIM, values, strict=True)
            if claimed and then is not None:
                add_continuation(db, then, self._shared.cipher)
            return self._rows.action(claimed[0]) if claimed else None

        claimed = await self._shared.write(work)
        self._changes.notify((pending_topic(pending_id), JOBS))
        return claimed

    async def take_claim(self, pending_id: str) -> PendingAction | None:
        def work(db: SQLConnection) -> PendingAction | None:
            taken = db.execute(_TAKE_CLAIM, {"id": pending_id, "owner": self._shared.owner_id}).fetchone()
            return None if taken is None else self._rows.action(taken)

        return await self._shared.write(work)

    async def settle(
        self, pending_id: str, status: PendingStatus, *, outcome: Mapping[str, Any] | None = None, reopen: bool = False
    ) -> None:
        def work(db: SQLConnection) -> None:
            asked_by = None if outcome is None or reopen else _asked_by(db, pending_id)
            encrypted = None
            if outcome is not None and asked_by is not None:
                encrypted = self._rows.encrypt_outcome(outcome, pending_id, asked_by)
            values = {"id": pending_id, "status": status, "outcome": encrypted, "owner": self._shared.owner_id}
            if not self._apply(db, _REOPEN if reopen else _SETTLE, values):
                raise TakenOverError(
                    f"question {pending_id!r} is not claimed by this process, so it cannot be settled as {status!r}"
                )

        await self._shared.write(work)
        self._changes.notify((pending_topic(pending_id),))

    async def expire(self, at: float) -> Actions:
        return await self._change(_EXPIRE, {"owner": self._shared.owner_id, "at": at})

    async def cancel(self, call_id: str, *, tenant: str | None = None) -> Actions:
        values = {"id": call_id, "tenant": tenant, "owner": self._shared.owner_id}
        return await self._change(_CANCEL if tenant is None else _CANCEL_OF_TENANT, values)

    async def adopt_claims(self) -> Actions:
        def work(db: SQLConnection) -> Actions:
            dead = db.ended([owner for (owner,) in db.execute(_CLAIMANTS)])
            values = {"owner": self._shared.owner_id, "dead": dead}
            return self._rows.actions(db.execute(_ADOPT, values).fetchall()) if dead else []

        return await self._shared.write(work)

    async def _change(self, change: _RowChange, values: dict[str, Any]) -> Actions:
        """Apply a change and return the changed actions; if one cannot be decrypted now, change nothing."""
        changed = await self._shared.write(lambda db: self._rows.actions(self._apply(db, change, values)))
        self._changes.notify(pending_topic(action.id) for action in changed)
        return changed

    def _apply(self, db: SQLConnection, change: _RowChange, values: dict[str, Any], *, strict: bool = False) -> Rows:
        """Change rows and renew their MACs, except invalid ones, which `verify` still reports."""
        query = f"SELECT {STATUS_COLUMNS}, mac FROM pending WHERE {change.condition} ORDER BY id FOR UPDATE"  # noqa: S608 - constants, here and below
        sound = [row[0] for row in db.execute(query, values).fetchall() if self._rows.is_sound(row, strict=strict)]
        sql = f"UPDATE pending SET {change.assignments} WHERE {change.condition} RETURNING {COLUMNS}"  # noqa: S608
        changed = db.execute(sql, values).fetchall()
        for *status, _ in db.execute(_STATUS, {"ids": sound}).fetchall():
            db.execute(_SET_MAC, {"mac": self._rows.status_mac(status), "id": status[0]})
        if changed:
            db.publish()
        return changed


def _asked_by(db: SQLConnection, pending_id: str) -> Principal | None:
    row = db.execute('SELECT tenant, "user" FROM pending WHERE id = :id', {"id": pending_id}).fetchone()
    return None if row is None else Principal(*row)
