"""Outcomes written to a store, and read back from it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolpost.contracts import errors
from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.outcomes import Completed, Failed, Paused, outcome_to_dict
from toolpost.contracts.questions import Question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.questions import PendingAction
    from toolpost.contracts.storage import PendingStore, Store

_MOST_PAUSES = 100


def to_keep(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain data, with what a model is to read of it."""
    text = outcome.text if isinstance(outcome, Completed) else None
    origin = outcome.error.origin if isinstance(outcome, Failed) else ""
    return outcome_to_dict(outcome) | ({} if text is None else {"text": text}) | ({"origin": origin} if origin else {})


def revive(kept: Mapping[str, Any]) -> Outcome:
    """The outcome that `to_keep` was given; of a question what is shown of it."""
    call_id, run_id, tool = kept["call_id"], kept["run_id"], kept["tool_name"]
    duration = kept.get("duration_ms", 0.0)
    if kept["status"] == "completed":
        artifacts, meta = tuple(kept["artifacts"]), kept.get("meta", {})
        return Completed(call_id, run_id, tool, kept["content"], duration, artifacts, kept.get("text"), meta=meta)
    if kept["status"] == "failed":
        error = _error(kept["error"])
        error.origin = kept.get("origin", "")
        return Failed(call_id, run_id, tool, error, duration)
    pending = kept["pending"]
    return Paused(call_id, run_id, tool, pending["id"], Question.shown(pending), duration)


async def recorded_outcome(store: Store, call_id: str, *, tenant: str) -> Outcome | None:
    """What came of a call with effects as far as the store knows: its result, or the question that it waits for."""
    entry = await store.journal.find(call_id, "")
    if entry is not None and entry.done:
        return await current_outcome(store.pending, entry.result)
    for action in await store.pending.list(tenant=tenant, status=None, call_id=call_id, limit=1):
        return paused(action) if action.outcome is None else await current_outcome(store.pending, action.outcome)
    return None


async def current_outcome(pending: PendingStore, kept: Mapping[str, Any]) -> Outcome:
    """The kept outcome; a pause that has been answered since gives what came of the answer, else its question."""
    for _ in range(_MOST_PAUSES):
        if kept["status"] != "paused":
            break
        action = await pending.get(kept["pending"]["id"])
        if action is None:
            break
        if action.outcome is None:
            return paused(action)
        kept = action.outcome
    return revive(kept)


def paused(action: PendingAction) -> Paused:
    """The outcome of a call that waits for this question."""
    asked = replace(action.question, state=None)
    return Paused(action.call_id, action.run_id, action.tool_name, action.id, asked)


def _error(kept: Mapping[str, Any]) -> ToolError:
    """An error of the same class, told in the same words."""
    kind = getattr(errors, kept["type"], ToolError)
    error: ToolError = kind.__new__(kind)
    ToolError.__init__(
        error,
        kept["message"],
        tool_name=kept["tool_name"],
        category=ErrorCategory(kept["category"]),
        status_code=kept["status_code"],
        code=kept["error_code"],
    )
    if isinstance(error, errors.ToolValidationError):
        error.issues = list(kept.get("issues", []))
    return error
