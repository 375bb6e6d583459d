"""Check an answer before its pending action is claimed: a refused answer leaves the action open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.catalog.lock import DEFINITION
from toolpost.contracts.errors import ToolConflictError, ToolPermissionError, ToolValidationError
from toolpost.contracts.outcomes import Failed
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.contracts.questions import DECISIONS, Decision, PendingAction
from toolpost.policy.approvals import answer_refusal
from toolpost.policy.call_hashes import call_hash, tool_hash
from toolpost.policy.call_summary import refuse_masks, target_summary
from toolpost.runtime.persistence import recorded_outcome
from toolpost.schema.json_patch import JsonChange, apply_patch
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.clock import Clock
    from toolpost.contracts.storage import Store
    from toolpost.policy.redaction import Redactor

WITHOUT_TOOL = frozenset({"deny", "happened", "not_happened"})  # answers that run nothing
_WILDCARDS = frozenset("*?[")
_BEFORE_NEXT_CALL = {"approval": "deny it and ", "unknown": "say whether it happened and "}


class AnswerChecks:
    """Raise an error for an answer that is invalid for its question, or too late."""

    def __init__(self, registry: ToolRegistry, store: Store, redactor: Redactor, clock: Clock) -> None:
        self._now = clock.wall
        self._registry = registry
        self._store = store
        self._redactor = redactor

    def check(self, action: PendingAction, by: str, decision: Decision) -> None:
        if why := answer_refusal(action, by, decision):
            msg = f"{by!r} may not answer {action.id!r}: {why}"
            raise ToolPermissionError(msg, tool_name=action.tool_name, code="not_an_answerer")
        if action.question.kind == "call":
            waits_for = action.question.payload["waits_for"]
            inner_ids = " and ".join(repr(one["id"]) for one in (waits_for, *waits_for.get("others", ())))
            msg = f"{action.id!r} resumes automatically when its nested calls have ended; answer {inner_ids}"
            raise ToolValidationError(msg, tool_name=action.tool_name)
        allowed = DECISIONS[action.question.kind]
        if decision not in allowed:
            msg = f"a question of kind {action.question.kind} takes {', '.join(sorted(allowed))}, not {decision!r}"
            raise ToolValidationError(msg, tool_name=action.tool_name)
        if decision not in WITHOUT_TOOL:
            self.refuse_missing(action)

    def refuse_missing(self, action: PendingAction) -> None:
        """Raise ToolConflictError if this process does not have the tool."""
        if not self._registry.has(action.tool_name):
            msg = f"{action.tool_name!r} is not in this process's catalog; answer where it is, or name its source here"
            raise ToolConflictError(msg, tool_name=action.tool_name, code="tool_missing")

    async def refuse_after_failure(self, action: PendingAction) -> None:
        """Raise ToolConflictError if a parent call of this action has failed: nothing new starts in it."""
        outer_id = action.call_id
        while outer_id := outer_id.rpartition(".")[0]:
            outer = await recorded_outcome(self._store, outer_id, tenant=action.asked_by.tenant)
            if isinstance(outer, Failed):
                left = "say whether it happened" if action.question.kind == "unknown" else "deny it"
                msg = f"{action.id!r} belongs to a nested call of {outer.tool_name!r}, which has failed; {left}"
                raise ToolConflictError(msg, tool_name=action.tool_name, code="outer_failed")

    def check_value(self, action: PendingAction, value: Any, decision: Decision) -> None:
        """Raise ToolValidationError for a value that violates the schema of the answer."""
        schema = action.question.answer_schema
        if decision == "answer" and schema is not None:
            from toolpost.schema.validator import compile_validator  # noqa: PLC0415 - most programs have no answers

            compile_validator(dict(schema)).check(value, action.tool_name)

    def grant(self, action: PendingAction, changes: Sequence[JsonChange] | None) -> str:
        """Return the hash of the approved call; changed arguments are validated first."""
        if action.question.key != DEFINITION:
            self.refuse_changed(action)
            if changes is None:
                return action.arguments_hash
        entry = self._registry.find(action.tool_name)
        return call_hash(entry.spec, entry.fit(patched_arguments(action, changes)))

    def accept_definition(self, action: PendingAction, by: str, *, operator: bool | None) -> None:
        """Pin the definition that the question showed, unless it is already accepted."""
        hold = self._registry.find(action.tool_name).unaccepted
        if action.question.key != DEFINITION or hold is None or hold.is_settled():
            return
        if not is_operator(by, operator=operator):
            raise operator_required(by, action.tool_name)
        if hold.after.hash != action.question.payload.get("hash"):
            msg = f"{action.tool_name!r} has changed again since the question; deny it and call the tool again"
            raise ToolConflictError(msg, tool_name=action.tool_name, code="tool_changed")
        hold.accept()

    def refuse_changed(self, action: PendingAction) -> None:
        """Raise ToolConflictError if the tool, or the target of its calls, has changed since the question."""
        entry = self._registry.find(action.tool_name)
        try:
            arguments = entry.fit(dict(action.arguments))
            # The question about an interrupted call comes from its intent, which has the requested arguments.
            interrupted = action.question.reason == "outcome_unknown" and action.question.kind in ("unknown", "call")
            now = tool_hash(entry.spec) if interrupted else call_hash(entry.spec, arguments)
        except ToolValidationError:
            now = ""
        if now != action.arguments_hash:
            first = _BEFORE_NEXT_CALL.get(action.question.kind, "")
            moved = _target_change(action.question.target, target_summary(entry.spec, self._redactor.redact))
            msg = f"{action.tool_name!r} has changed since the question{moved}; {first}call the tool again"
            raise ToolConflictError(msg, tool_name=action.tool_name, code="tool_changed")

    async def too_late(self, pending_id: str) -> ToolConflictError:
        """Return the error for an answer to an action that is not open."""
        action = await self._store.pending.get(pending_id)
        if action is None:
            return ToolConflictError(f"{pending_id!r} is gone", code="already_answered")
        if action.status == "expired" or (action.status == "open" and action.expires_at <= self._now()):
            return ToolConflictError(f"{pending_id!r} has expired; call the tool again", code="question_expired")
        if action.status == "cancelled":
            return ToolConflictError(f"{pending_id!r} was cancelled", code="question_cancelled")
        return ToolConflictError(
            f"{pending_id!r} was already answered by {action.answered_by}", code="already_answered"
        )


def check_changes(action: PendingAction, changes: Sequence[JsonChange]) -> None:
    """Raise ToolValidationError for changes that cannot be applied, or that would send a mask."""
    patched_arguments(action, changes)
    refuse_masks(changes, action.tool_name)


def check_escalation(action: PendingAction, to: str) -> None:
    """Raise ToolValidationError unless `to` is a user, or a pattern of users, of the tenant who may answer."""
    tenant = action.asked_by.tenant
    if to.partition(":")[0] != tenant or not to.partition(":")[2]:
        msg = f"{to!r} is not a user of the tenant {tenant!r}: pass it on to {tenant}:NAME, or to a pattern"
        raise ToolValidationError(msg, tool_name=action.tool_name)
    if _WILDCARDS.intersection(to):
        return
    try:
        why = answer_refusal(action, to, "approve")
    except ValueError as error:
        why = str(error)
    if why:
        raise ToolValidationError(f"{to!r} may not answer {action.id!r}: {why}", tool_name=action.tool_name)


def patched_arguments(action: PendingAction, changes: Sequence[JsonChange] | None) -> dict[str, Any]:
    """Return the exact arguments of a call with the changes of an answer; ToolValidationError for invalid ones."""
    arguments = dict(action.arguments)
    if changes is None:
        return arguments
    patched = apply_patch(arguments, changes)
    if not is_object(patched):
        raise ToolValidationError("the changed arguments must be an object, such as {}", tool_name=action.tool_name)
    return patched


def is_operator(by: str, *, operator: bool | None) -> bool:
    """Return whether the operator answers; by default users of the local tenant are the operator."""
    return Principal.parse(by).tenant == LOCAL_TENANT if operator is None else operator


def operator_required(by: str, tool_name: str) -> ToolPermissionError:
    """Return the error for a definition that only the operator may accept."""
    msg = (
        f"{by!r} may not accept the changed definition of {tool_name!r}: all tenants share it, so only the operator may"
        f"; `toolpost lock approve {tool_name}` does, and the call then continues automatically"
    )
    return ToolPermissionError(msg, tool_name=tool_name, code="operator_required")


def _target_change(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Describe the change of a call's target since the question, or return an empty string."""
    if not before or before == now:
        return ""
    return f": it was {before.get('summary')}, and is now {now.get('summary')}"
