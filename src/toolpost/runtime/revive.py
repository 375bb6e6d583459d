"""Outcomes written to a store, and read back from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.contracts import errors
from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.outcomes import Completed, Failed, Paused, outcome_to_dict
from toolpost.contracts.questions import Question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.outcomes import Outcome


def to_keep(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain data, with what a model is to read of it."""
    text = outcome.text if isinstance(outcome, Completed) else None
    return outcome_to_dict(outcome) | ({} if text is None else {"text": text})


def revive(kept: Mapping[str, Any]) -> Outcome:
    """The outcome that `to_keep` was given; of a question what is shown of it."""
    call_id, run_id, tool = kept["call_id"], kept["run_id"], kept["tool_name"]
    duration = kept.get("duration_ms", 0.0)
    if kept["status"] == "completed":
        artifacts, meta = tuple(kept["artifacts"]), kept.get("meta", {})
        return Completed(call_id, run_id, tool, kept["content"], duration, artifacts, kept.get("text"), meta=meta)
    if kept["status"] == "failed":
        return Failed(call_id, run_id, tool, _error(kept["error"]), duration)
    pending = kept["pending"]
    return Paused(call_id, run_id, tool, pending["id"], Question.shown(pending), duration)


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
