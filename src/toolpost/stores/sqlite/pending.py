"""Pending actions in SQLite: stored encrypted, claimed by one atomic statement, never answered twice."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from msgspec.structs import replace

from toolpost.contracts.errors import StoreError
from toolpost.contracts.questions import Answer, PendingAction, PendingStatus, Question
from toolpost.stores.chain import LogKey
from toolpost.stores.encryption import UNREADABLE, readable_rows
from toolpost.stores.records import action_from_data, action_to_data, answer_to_data
from toolpost.stores.sqlite.changes import pending_topic
from toolpost.stores.sqlite.context import SQLiteContext
from toolpost.stores.sqlite.database import RowChange

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = list[Row]
Actions: TypeAlias = list[PendingAction]  # The store's own `list` hides the builtin one.
STATUS_COLUMNS = "id, call_id, run_id, tenant, user, status, created_at, expires_at, answered_by, answered_at"
_COLUMNS = "id, tenant, user, status, action, answer, answered_by, answered_at, outcome"
_ADD = """
INSERT INTO pending (id, call_id, run_id, tenant, user, status, created_at, expires_at, action, mac, same_call)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_STATUS = f"SELECT {STATUS_COLUMNS}, mac FROM pending WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608 - constants, here and below
_WAITING = f"""
SELECT {STATUS_COLUMNS}, mac FROM pending WHERE same_call = ? AND status = 'open' AND expires_at > ?
ORDER BY created_at, rowid
"""  # noqa: S608
_GET = f"SELECT {_COLUMNS} FROM pending WHERE id = :id"  # noqa: S608
_LIST = f"SELECT {_COLUMNS} FROM pending WHERE TRUE"  # noqa: S608
_BEFORE = """
AND (created_at, rowid) < (
    SELECT created_at, rowid FROM pending WHERE id = :before AND (:tenant IS NULL OR tenant = :tenant)
)
"""
_NEWEST_FIRST = " ORDER BY created_at DESC, rowid DESC LIMIT :limit"
# The ID of a nested call begins with that of its parent and a dot; "/" is the character after the dot.
_COUNT_OPEN = """
SELECT count(*) FROM pending AS one WHERE status = 'open' AND NOT EXISTS (
    SELECT 1 FROM pending AS inside
    WHERE inside.call_id > one.call_id || '.' AND inside.call_id < one.call_id || '/' AND inside.status = 'open'
)
"""
# The process that claims an action owns it until the action is settled.
_CLAIMANTS = "SELECT DISTINCT owner FROM pending WHERE owner IS NOT NULL"
# Only after the intent of the call has been handled: of two processes that recover concurrently, one could otherwise
# create a question about the call while the other runs it again.
_ADOPT = f"""
UPDATE pending SET owner = ? WHERE owner = ? AND NOT EXISTS (
    SELECT 1 FROM journal WHERE journal.call_id = pending.call_id AND journal.step = '' AND journal.result IS NULL
) RETURNING {_COLUMNS}
"""  # noqa: S608
_CLAIM = RowChange(
    "status = 'claimed', answer = :answer, answered_by = :by, answered_at = :at, owner = :owner",
    "id = :id AND status = 'open' AND expires_at > :at",
)
_SETTLE = RowChange("status = :status, outcome = :outcome, owner = NULL", "id = :id AND status IN ('claimed', :status)")
_REOPEN = RowChange(
    "status = 'open', answer = NULL, answered_by = NULL, answered_at = NULL, owner = NULL",
    "id = :id AND status = 'claimed'",
)
_EXPIRE = RowChange("status = 'expired', owner = :owner", "status = 'open' AND expires_at <= :at")
_CANCEL = RowChange(
    "status = 'cancelled', owner = :owner",
    "status = 'open' AND (call_id = :id OR run_id = :id) AND (:tenant IS NULL OR tenant = :tenant)",
)


class SQLitePendingStore:
    """Pending actions, encrypted; their status is in columns that statements compare, with a MAC over them.

    A list skips and logs rows that cannot be decrypted; `get` raises StoreError. An action with a status that was
    changed outside of Toolpost, such as one that was reopened, cannot be claimed.
    """

    def __init__(self, shared: SQLiteContext) -> None:
        self._shared = shared

    async def add(self, action: PendingAction, *, unless_waiting: bool = False) -> PendingAction | None:
        tenant, user = action.asked_by
        encrypted = self._encrypt_action(action)
        row = (action.id, action.call_id, action.run_id, tenant, user, action.status)
        times = (float(action.created_at), float(action.expires_at))
        mac = status_mac(self._shared.key, (*row, *times, None, None))

        def work(db: sqlite3.Connection) -> PendingAction | None:
            waiting = self._waiting(db, action.same_call, action.created_at) if unless_waiting else None
            if waiting is not None:
                return waiting
            if not db.execute(_ADD, (*row, *times, encrypted, mac, self._call_mac(action.same_call))).rowcount:
                raise StoreError(f"question {action.id!r} exists already; every question needs a unique id")
            return None

        return await self._shared.writer.submit(work)

    @property
    def may_wait(self) -> bool:
        return True  # another process may have stored one

    async def find_waiting(self, same_call: str, *, at: float) -> PendingAction | None:
        return await self._shared.reader.query(lambda db: self._waiting(db, same_call, at))

    async def renew(self, pending_id: str, question: Question) -> None:
        def work(db: sqlite3.Connection) -> None:
            row = db.execute(_GET, {"id": pending_id}).fetchone()
            if row is not None and row[3] == "open":
                encrypted = self._encrypt_action(replace(self._action(row), question=question))
                db.execute("UPDATE pending SET action = ? WHERE id = ?", (encrypted, pending_id))

        await self._shared.writer.submit(work)

    def _waiting(self, db: sqlite3.Connection, same_call: str, at: float) -> PendingAction | None:
        """Return the open action of the same call; rows that were changed from outside are skipped."""
        mac = self._call_mac(same_call)
        rows = [] if mac is None else db.execute(_WAITING, (mac, at)).fetchall()
        ids = [row[0] for row in rows if self._is_sound(row, strict=False)]
        found = (db.execute(_GET, {"id": id_}).fetchone() for id_ in ids)
        return next((action for action in self._actions(found) if action.same_call == same_call), None)

    def _call_mac(self, same_call: str) -> bytes | None:
        """Return the value of the column: from a plain hash, a reader of the file could guess short arguments."""
        return self._shared.key.mac("same call", same_call.encode()) if same_call else None

    def _encrypt_action(self, action: PendingAction) -> bytes:
        return self._shared.cipher.encrypt(action_to_data(action), "pending", *action.asked_by, action.id, "action")

    async def get(self, pending_id: str, *, tenant: str | None = None) -> PendingAction | None:
        sql = _GET + (" AND tenant = :tenant" if tenant is not None else "")

        def work(db: sqlite3.Connection) -> PendingAction | None:
            row = db.execute(sql, {"id": pending_id, "tenant": tenant}).fetchone()
            return None if row is None else self._action(row)

        return await self._shared.reader.query(work)

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
        sql = _LIST + "".join(f" AND {name} = :{name}" for name, value in values.items() if value is not None)

        def work(db: sqlite3.Connection) -> Actions:
            found, last = Actions(), before
            while (missing := limit - len(found)) > 0:  # rows that cannot be decrypted are skipped
                page = sql + (_BEFORE if last is not None else "") + _NEWEST_FIRST
                rows = db.execute(page, {**values, "before": last, "limit": missing}).fetchall()
                found += self._actions(rows)
                if len(rows) < missing:
                    break
                last = rows[-1][0]
            return found

        return await self._shared.reader.query(work)

    async def wait(self, pending_ids: Sequence[str], known: object = None, *, timeout_s: float = 0.0) -> object:
        return await self._shared.changes.wait_for([*map(pending_topic, pending_ids)], known, timeout_s=timeout_s)

    async def count_open(self) -> int:
        def work(db: sqlite3.Connection) -> int:
            count: int = db.execute(_COUNT_OPEN).fetchone()[0]
            return count

        return await self._shared.reader.query(work)

    async def claim(self, pending_id: str, answer: Answer, *, by: str, at: float) -> PendingAction | None:
        def work(db: sqlite3.Connection) -> PendingAction | None:
            encrypted = self._encrypt(db, pending_id, answer_to_data(answer), "answer")
            values = {"answer": encrypted, "by": by, "at": at, "owner": self._shared.owner_id, "id": pending_id}
            claimed = self._apply(db, _CLAIM, values, strict=True)
            return self._action(claimed[0]) if claimed else None

        claimed = await self._shared.writer.submit(work)
        self._shared.changes.notify((pending_topic(pending_id),))
        return claimed

    async def settle(
        self, pending_id: str, status: PendingStatus, *, outcome: Mapping[str, Any] | None = None, reopen: bool = False
    ) -> None:
        def work(db: sqlite3.Connection) -> None:
            encrypted = None if outcome is None or reopen else self._encrypt(db, pending_id, dict(outcome), "outcome")
            values = {"id": pending_id, "status": status, "outcome": encrypted}
            if not self._apply(db, _REOPEN if reopen else _SETTLE, values):
                raise StoreError(f"question {pending_id!r} is not claimed, so it cannot be settled as {status!r}")

        await self._shared.writer.submit(work)
        self._shared.changes.notify((pending_topic(pending_id),))

    async def expire(self, at: float) -> Actions:
        return await self._change(_EXPIRE, {"owner": self._shared.owner_id, "at": at})

    async def cancel(self, call_id: str, *, tenant: str | None = None) -> Actions:
        values = {"id": call_id, "tenant": tenant, "owner": self._shared.owner_id}
        return await self._change(_CANCEL, values)

    async def adopt_claims(self) -> Actions:
        def work(db: sqlite3.Connection) -> Actions:
            dead = [owner for (owner,) in db.execute(_CLAIMANTS).fetchall() if not self._shared.liveness.alive(owner)]
            adopted = (db.execute(_ADOPT, (self._shared.owner_id, owner)).fetchall() for owner in dead)
            return self._actions(chain.from_iterable(adopted))

        return await self._shared.writer.submit(work)

    async def _change(self, change: RowChange, values: dict[str, Any]) -> Actions:
        """Apply a change and return the changed actions; if one cannot be decrypted now, change nothing."""
        changed = await self._shared.writer.submit(lambda db: self._actions(self._apply(db, change, values)))
        self._shared.changes.notify(pending_topic(action.id) for action in changed)
        return changed

    def _apply(
        self, db: sqlite3.Connection, change: RowChange, values: dict[str, Any], *, strict: bool = False
    ) -> Rows:
        """Change rows and renew their MACs, except invalid ones, which `verify` still reports."""
        query = f"SELECT {STATUS_COLUMNS}, mac FROM pending WHERE {change.condition}"  # noqa: S608 - constants, here and below
        sound = [row[0] for row in db.execute(query, values).fetchall() if self._is_sound(row, strict=strict)]
        sql = f"UPDATE pending SET {change.assignments} WHERE {change.condition} RETURNING {_COLUMNS}"  # noqa: S608
        changed = db.execute(sql, values).fetchall()
        for *status, _ in db.execute(_STATUS, (json.dumps(sound),)).fetchall():
            mac = status_mac(self._shared.key, tuple(status))
            db.execute("UPDATE pending SET mac = ? WHERE id = ?", (mac, status[0]))
        return changed

    def _is_sound(self, row: Row, *, strict: bool) -> bool:
        *status, mac = row
        if mac == status_mac(self._shared.key, tuple(status)):
            return True
        if strict:
            msg = f"question {row[0]!r} was changed outside of toolpost and cannot be answered; call the tool again"
            raise StoreError(msg, code=UNREADABLE)
        return False

    def _encrypt(self, db: sqlite3.Connection, pending_id: str, data: dict[str, Any], column: str) -> bytes | None:
        row = db.execute("SELECT tenant, user FROM pending WHERE id = ?", (pending_id,)).fetchone()
        return self._shared.cipher.encrypt(data, "pending", *row, pending_id, column) if row else None

    def _actions(self, rows: Iterable[Row]) -> Actions:
        return readable_rows(rows, self._action, lambda row: f"question {row[0]!r}")

    def _action(self, row: Row) -> PendingAction:
        id_, tenant, user, status, action, answer, answered_by, answered_at, outcome = row
        name = ("pending", tenant, user, id_)
        return replace(
            action_from_data(self._shared.cipher.decrypt(action, *name, "action")),
            status=status,
            answer=None if answer is None else Answer(**self._shared.cipher.decrypt(answer, *name, "answer")),
            answered_by=answered_by,
            answered_at=answered_at,
            outcome=None if outcome is None else self._shared.cipher.decrypt(outcome, *name, "outcome"),
        )


def status_mac(key: LogKey, status: tuple[Any, ...]) -> bytes:
    """Return the MAC over the `STATUS_COLUMNS` of a question."""
    return key.mac_fields("pending", status)
