"""Convert outcomes and contexts to plain data for the store, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from toolpost.contracts import errors
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.events import RunSummary
from toolpost.contracts.outcomes import Completed, Failed, OpenQuestion, Outcome, Paused, outcome_to_dict
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import PendingAction, Question
from toolpost.contracts.storage import PendingStore, Store
from toolpost.schema.secrets import drop_secrets

INTERRUPTED = "interrupted"  # the code of calls whose process has terminated
_MOST_PAUSES = 100


def dump_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain data, with the text for a model and the origin of an error."""
    text = outcome.text if isinstance(outcome, Completed) else None
    origin = outcome.error.origin if isinstance(outcome, Failed) else ""
    return outcome_to_dict(outcome) | ({} if text is None else {"text": text}) | ({"origin": origin} if origin else {})


def load_outcome(data: Mapping[str, Any]) -> Outcome:
    """Build the outcome from the data of `dump_outcome`; a question has only its shown data."""
    call_id, run_id, tool = data["call_id"], data["run_id"], data["tool_name"]
    duration = data.get("duration_ms", 0.0)
    if data["status"] == "completed":
        artifacts, meta = tuple(data["artifacts"]), data.get("meta", {})
        return Completed(call_id, run_id, tool, data["content"], duration, artifacts, data.get("text"), meta=meta)
    if data["status"] == "failed":
        error = _load_error(data["error"])
        error.origin = data.get("origin", "")
        return Failed(call_id, run_id, tool, error, duration)
    return replace(_load_pause(call_id, run_id, tool, data["pending"]), duration_ms=duration)


def _load_pause(call_id: str, run_id: str, tool: str, pending: Mapping[str, Any]) -> Paused:
    """Build a pause from the data of its questions."""
    asked = tuple(
        OpenQuestion(one["id"], one.get("tool_name", tool), Question.shown(one))
        for one in (pending, *pending.get("others", ()))
    )
    is_own = len(asked) == 1 and asked[0].tool_name == tool
    return Paused(call_id, run_id, tool, asked[0].pending_id, asked[0].question, inside=() if is_own else asked)


async def kept_outcome(store: Store, run: RunSummary) -> Outcome | None:
    """Return the outcome of a run with a key or with effects, or its open question; None if none is stored.

    A run with a key that failed without an outcome had no effects, and its process has terminated.
    """
    record = await store.idempotency.find(Principal(run.tenant, run.user), run.call_id)
    if record is not None and record.outcome is not None:
        return await current_outcome(store.pending, record.outcome)
    outcome = await recorded_outcome(store, run.call_id, tenant=run.tenant)
    if outcome is None and record is not None and not record.owner_alive and run.status == "failed":
        return Failed(run.call_id, run.run_id, run.tool_name, interrupted_error(run.tool_name))
    return outcome


def interrupted_error(tool_name: str) -> ToolError:
    """Return the error of a call that is safe to repeat, after its process has terminated."""
    message = "the process of this call ended while it ran; it is safe to call again"
    return ToolError(message, tool_name=tool_name, category=ErrorCategory.RETRYABLE_SERVER, code="interrupted")


async def recorded_outcome(store: Store, call_id: str, *, tenant: str) -> Outcome | None:
    """Return the recorded result of a call with effects, or the question that it waits for; None without a record."""
    entry = await store.journal.find(call_id, "")
    if entry is not None and entry.done:
        return await current_outcome(store.pending, entry.result)
    for action in await store.pending.list(tenant=tenant, status=None, call_id=call_id, limit=1):
        if action.outcome is None:
            return await paused_outcome(store.pending, action)
        return await current_outcome(store.pending, action.outcome)
    return None


async def current_outcome(pending: PendingStore, data: Mapping[str, Any]) -> Outcome:
    """Return a stored outcome; for an answered pause, the outcome of the answer."""
    for _ in range(_MOST_PAUSES):
        if data["status"] != "paused":
            break
        action = await pending.get(data["pending"]["id"])
        if action is not None and action.call_id != data["call_id"]:  # a call that waits for a nested call
            action = next(iter(await pending.list(status=None, call_id=data["call_id"], limit=1)), None)
        if action is None:
            break
        if action.outcome is None:
            return await paused_outcome(pending, action)
        data = action.outcome
    return load_outcome(data)


async def paused_outcome(pending: PendingStore, action: PendingAction) -> Paused:
    """Return the outcome of a call that waits for this pending action, or for those of its nested calls.

    The questions of nested calls are the current ones, complete with form and sign-in: a nested call may have another
    question after an answer. If none is open, because the calls are running, they are those from when the call paused.
    """
    if action.question.kind != "call":
        question = replace(action.question, state=None)
        return Paused(action.call_id, action.run_id, action.tool_name, action.id, question)
    inside: list[OpenQuestion] = []
    for call_id in action.question.payload["calls"]:
        for inner in await pending.list(tenant=action.asked_by.tenant, call_id=call_id, limit=1):
            inside += (await paused_outcome(pending, inner)).questions
    shown = _load_pause(action.call_id, action.run_id, action.tool_name, action.question.payload["waits_for"])
    first, *others = inside or shown.questions
    return replace(shown, pending_id=first.pending_id, question=first.question, inside=(first, *others))


def _load_error(data: Mapping[str, Any]) -> ToolError:
    """Build an error of the stored class with the stored message."""
    kind = getattr(errors, data["type"], ToolError)
    error: ToolError = kind.__new__(kind)
    ToolError.__init__(
        error,
        data["message"],
        tool_name=data["tool_name"],
        category=ErrorCategory(data["category"]),
        status_code=data["status_code"],
        code=data["error_code"],
    )
    error.is_repeatable = data.get("is_retryable", True) or not error.is_retryable
    if isinstance(error, errors.ToolValidationError):
        error.issues = list(data.get("issues", []))
    return error


def dump_context(context: ToolContext | None) -> dict[str, Any] | None:
    """Return the part of a context that is stored with a pause: paths, ids, and JSON values without secrets."""
    if context is None:
        return None
    paths = context.allowed_paths
    own = {} if context.inherits_paths else {"allowed_paths": None if paths is None else list(paths)}
    return {
        **own,
        "user_id": context.user_id,
        "trace_id": context.trace_id,
        "caller": context.caller,
        "memory_dir": context.memory_dir,
        "shared_memory_dir": context.shared_memory_dir,
        "session_dir": context.session_dir,
        "llm_context": plain_members(context.llm_context),
        "tool_context": plain_members(context.tool_context),
    }


def load_context(data: Mapping[str, Any] | None) -> ToolContext | None:
    """Build the context from the data of `dump_context`."""
    return None if data is None else ToolContext(**data)


def plain_members(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that are JSON, without values under secret-like names at any depth."""
    members: dict[str, Any] = {}
    for name, value in values.items():
        try:
            members |= json.loads(json.dumps(drop_secrets({name: value}), allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            continue
    return members
