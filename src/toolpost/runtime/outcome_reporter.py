"""Outcomes of calls that end without running: denied, expired, cancelled, or as an answer reports.

Their ends are emitted after the outcomes are stored: after a crash in between, recovery emits them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolApprovalDenied, ToolCancelledError, ToolConflictError, ToolError
from toolpost.contracts.events import CallRef, EventCode, RunSummary
from toolpost.contracts.outcomes import Completed, Failed, Paused
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction
from toolpost.contracts.sources import HoldingSource
from toolpost.contracts.storage import ArtifactRef, JournalEntry
from toolpost.runtime.persistence import interrupted_error, load_outcome
from toolpost.runtime.results import summary_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.event_emitter import EventEmitter

_UNKNOWN_RESULT = "It happened, according to the answer; its result is not known."
_ANSWER_CODES = {"approve": EventCode.APPROVAL_GRANTED, "deny": EventCode.APPROVAL_DENIED}


class OutcomeReporter:
    """Build and emit the outcomes of calls that end without running: denied, expired, cancelled or as reported."""

    def __init__(self, emitter: EventEmitter, redactor: Redactor, registry: ToolRegistry) -> None:
        self._emitter = emitter
        self._redactor = redactor
        self._registry = registry

    def emit_answer(self, action: PendingAction, answer: Answer, *, recovered: bool = False) -> None:
        """Emit that a person answered; `recovered` marks the repeated event after a crash."""
        facts: dict[str, Any] = {"pending_id": action.id, "kind": action.question.kind}
        facts |= {"by": action.answered_by, "decision": answer.decision}
        if recovered:
            facts["recovered"] = True
        code = _ANSWER_CODES.get(answer.decision, EventCode.CALL_RESUMED)
        self._emitter.emit(self._ref(action), code, {**facts, "reason": answer.reason})

    def emit_given(self, action: PendingAction, copy: ArtifactRef, *, by: str) -> None:
        """Emit that an answerer gave the call a copy of their artifact."""
        facts = {"artifact_id": copy.id, "media_type": copy.media_type, "size": copy.size, "by": by}
        self._emitter.emit(self._ref(action), EventCode.ARTIFACT_STORED, facts)

    def emit_escalated(self, action: PendingAction, *, by: str, to: str, note: str) -> None:
        """Emit that a person passed a pending action on to another one."""
        facts = {"pending_id": action.id, "by": by, "to": to, "note": note}
        self._emitter.emit(self._ref(action), EventCode.APPROVAL_ESCALATED, facts)

    def emit_pause(self, of: JournalEntry | PendingAction, action: PendingAction) -> None:
        """Emit the question of a call, also after a crash."""
        self._emitter.emit_pause(self._ref(of), action)

    def emit_recorded(self, of: RunSummary, data: Mapping[str, Any]) -> None:
        """Emit the end of a call with a recorded result if its process terminated before it emitted it."""
        outcome = load_outcome(data)
        if not isinstance(outcome, Paused):
            content = outcome.content if isinstance(outcome, Completed) else None
            self._emitter.emit_end(self._ref(of), outcome, summary=summary_of(content))

    def emit_unanswered(self, action: PendingAction, outcome: Failed) -> None:
        """Emit the end of a call whose question expired or was cancelled."""
        if action.status == "expired":
            self._emitter.emit(self._ref(action), EventCode.QUESTION_EXPIRED, {"pending_id": action.id})
        self.emit_end(action, outcome)

    def emit_end(self, of: PendingAction | JournalEntry | RunSummary, outcome: Completed | Failed) -> None:
        """Emit the end of a call that ended without running."""
        summary = "according to the answer" if isinstance(outcome, Completed) else None
        self._emitter.emit_end(self._ref(of), outcome, summary)

    def deny(self, action: PendingAction, answer: Answer) -> Failed:
        """Return the outcome of a call that a person denied."""
        because = f": {answer.reason}" if answer.reason else ""
        return self._fail(action, ToolApprovalDenied(f"{action.answered_by} refused {action.tool_name}{because}"))

    def expire(self, action: PendingAction) -> Failed:
        """Return the outcome of a call without an answer in time, which is a denial."""
        return self._fail(action, ToolApprovalDenied(f"no one answered {action.id} in time", code="question_expired"))

    def cancel(self, action: PendingAction) -> Failed:
        """Return the outcome of a call that was cancelled while it waited."""
        return self._fail(action, ToolCancelledError("the call was cancelled while it waited for an answer"))

    def confirm(self, action: PendingAction, content: Any) -> Completed:
        """Return the outcome of an interrupted call that happened according to the answer, with its result if known."""
        text = _UNKNOWN_RESULT if content is None else None
        return Completed(action.call_id, action.run_id, action.tool_name, content, text=text)

    def refuse(self, action: PendingAction, error: ToolConflictError) -> Failed:
        """Return the outcome of a call that cannot resume."""
        return self._fail(action, error)

    def refute(self, action: PendingAction) -> Failed:
        """Return the outcome of an interrupted call that did not happen, according to the answer."""
        return self._fail(action, ToolError("the call was interrupted and did not happen", code="not_executed"))

    def interrupt(self, of: JournalEntry | RunSummary) -> Failed:
        """Return the outcome of a call that is safe to repeat, after its process has terminated."""
        return self._fail(of, interrupted_error(of.tool_name))

    def _fail(self, of: PendingAction | JournalEntry | RunSummary, error: ToolError) -> Failed:
        if isinstance(of, PendingAction) and self._registry.has(of.tool_name):
            source = self._registry.find(of.tool_name).source
            if isinstance(source, HoldingSource):
                source.release(of.call_id)  # it holds the call open, and there will be no answer
        error.tool_name = of.tool_name
        error.conceal(self._redactor.message)
        return Failed(of.call_id, of.run_id, of.tool_name, error)

    def _ref(self, of: PendingAction | JournalEntry | RunSummary) -> CallRef:
        """Return the reference to a call for its events."""
        redact = self._redactor.plain
        if isinstance(of, PendingAction):
            who, correlation = of.asked_by, of.correlation_id
        elif isinstance(of, JournalEntry):
            who, correlation = of.principal, of.call.get("correlation_id", "")
        else:
            who, correlation = Principal(of.tenant, of.user), ""
        return CallRef(of.run_id, of.call_id, of.tool_name, who.tenant, who.user, correlation or of.call_id, redact)
