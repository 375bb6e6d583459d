"""Calls that were open when a backup was made: after a restore, their outcomes are unknown.

A call that was running may have ended since, and a call that waited may have been answered and carried out. Each
becomes an interrupted call with effects, so the next process asks a person about it and does not run it again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from toolpost.contracts.errors import StoreError, ToolExecutionError
from toolpost.contracts.outcomes import Failed, outcome_to_dict
from toolpost.contracts.questions import PendingAction
from toolpost.stores.chain import LogKey
from toolpost.stores.encryption import RowCipher
from toolpost.stores.pending_rows import COLUMNS, STATUS_COLUMNS, PendingRows
from toolpost.stores.records import answer_to_data
from toolpost.stores.sql.database import Statements

OWNER = "restored"  # no process has this id, so the first one adopts the calls
ANSWERED_BY = "toolpost:restore"
# As of a call with effects that its process did not finish.
_UNKNOWN = {"replay": "unsafe", "resumes": False, "restored": True}
_NAMES = ("tenant", "user", "call_id", "step", "run_id", "tool_name")
_INTENTS = """
SELECT tenant, "user", call_id, step, run_id, tool_name, call FROM journal WHERE result IS NULL AND step = ''
"""
_INTERRUPT = "UPDATE journal SET call = :call, owner = :owner WHERE call_id = :call_id AND step = ''"
_INSERT = """
INSERT INTO journal (call_id, step, run_id, tool_name, tenant, "user", at, owner, call)
VALUES (:call_id, '', :run_id, :tool_name, :tenant, :user, :at, :owner, :call) ON CONFLICT DO NOTHING
"""
_WAITING = f"SELECT {COLUMNS} FROM pending WHERE status IN ('open', 'claimed')"  # noqa: S608 - constants, here and below
_STATUS = f"SELECT {STATUS_COLUMNS}, mac FROM pending WHERE id = :id"  # noqa: S608
_CLAIM = """
UPDATE pending SET status = 'claimed', owner = :owner, answered_by = :by, answered_at = :at, mac = :mac WHERE id = :id
"""
_OPEN_JOBS = """SELECT id, run_id, tenant, "user" FROM jobs WHERE status IN ('waiting', 'running')"""
_END_JOB = """
UPDATE jobs SET status = 'failed', ended_at = :at, owner = '', body = NULL, outcome = :outcome WHERE id = :id
"""
_SESSIONS = "DELETE FROM state WHERE kind IN ('session', 'ticket')"


class Interrupted(NamedTuple):
    """The numbers of calls that became unknown, and of console sessions and tickets that were deleted."""

    calls: int
    sessions: int


def interrupt_open_calls(
    db: Statements, cipher: RowCipher, key: LogKey, *, at: float, has_jobs: bool = True
) -> Interrupted:
    """Mark the open calls of a restored store as interrupted, and end the sessions of the console.

    Rows that were changed outside of toolpost stay as they are: they are refused when they are used.
    """
    calls = _interrupt_running(db, cipher) | _interrupt_waiting(db, cipher, key, at)
    if has_jobs:  # a backup of the first version has none
        _end_jobs(db, cipher, at)
    return Interrupted(len(calls), db.execute(_SESSIONS).rowcount)


def _interrupt_running(db: Statements, cipher: RowCipher) -> set[str]:
    interrupted = set[str]()
    for *names, call in db.execute(_INTENTS).fetchall():
        named = dict(zip(_NAMES, names, strict=True))
        try:
            data = cipher.decrypt(call, "journal", *names, "call")
        except StoreError:
            continue
        encrypted = cipher.encrypt({**data, **_UNKNOWN}, "journal", *names, "call")
        db.execute(_INTERRUPT, {"call": encrypted, "owner": OWNER, "call_id": named["call_id"]})
        interrupted.add(named["call_id"])
    return interrupted


def _interrupt_waiting(db: Statements, cipher: RowCipher, key: LogKey, at: float) -> set[str]:
    rows = PendingRows(cipher, key)
    interrupted = set[str]()
    for action in rows.actions(db.execute(_WAITING).fetchall()):
        *status, mac = db.execute(_STATUS, {"id": action.id}).fetchone()
        if not rows.is_sound((*status, mac), strict=False):
            continue
        db.execute(_INSERT, _intent(cipher, action))
        claimed = [*status[:5], "claimed", *status[6:8], ANSWERED_BY, at]
        values = {"owner": OWNER, "by": ANSWERED_BY, "at": at, "mac": rows.status_mac(claimed), "id": action.id}
        db.execute(_CLAIM, values)
        interrupted.add(action.call_id)
    return interrupted


def _end_jobs(db: Statements, cipher: RowCipher, at: float) -> None:
    """End the jobs that waited or ran: their calls may have been made since the backup."""
    for id_, run_id, tenant, user in db.execute(_OPEN_JOBS).fetchall():
        message = "this background work was open in the backup that was restored; request it again if it is needed"
        failed = Failed("", run_id, "", ToolExecutionError(message, code="interrupted"))
        outcome = cipher.encrypt(outcome_to_dict(failed), "jobs", tenant, user, id_, "outcome")
        db.execute(_END_JOB, {"id": id_, "at": at, "outcome": outcome})


def _intent(cipher: RowCipher, action: PendingAction) -> dict[str, Any]:
    """Return the row of an intent for the call of a pending action."""
    call: dict[str, Any] = {
        "arguments": dict(action.arguments),
        "answers": {name: answer_to_data(answer) for name, answer in action.answers.items()},
        "correlation_id": action.correlation_id,
        "task_id": action.task_id,
        "timeout_s": action.timeout_s,
        "idempotency_key": action.idempotency_key,
        "context": None if action.context is None else dict(action.context),
        **_UNKNOWN,
    }
    tenant, user = action.asked_by
    names = (tenant, user, action.call_id, "", action.run_id, action.tool_name)
    values = dict(zip(_NAMES, names, strict=True))
    return {**values, "at": action.created_at, "owner": OWNER, "call": cipher.encrypt(call, "journal", *names, "call")}
